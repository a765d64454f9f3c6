"""Arguments that are wrong: refused at once, by the name of the function that was called and of the argument."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.refusals import refused
from tests.samples import Sample, all_samples
from tests.together import Test, at_once

from_ = Variable.from_numpy_array


def rows(*shape: int) -> Variable:
    """A leaf of float64 with distinct elements."""
    return from_(np.arange(math.prod(shape), dtype=np.float64).reshape(shape) + 0.5)


# ---------------------------------------------------------------- single faults


X = rows(1, 1, 4, 4)
HUGE = 2**40


test_refused = refused([
    (lambda: F.sinc_derivative(1.0, order=10**5), "sinc_derivative: order must be between 0 and 200"),
    (lambda: F.average_pooling(X, (2, 2), pad=HUGE), r"average_pooling\(.*pad .* range of int32"),
    (lambda: F.max_pooling(X, (2, 2), pad=HUGE), r"max_pooling\(.*pad .* range of int32"),
    (lambda: F.sum_pooling(X, HUGE, ignore_border=False), r"sum_pooling\(.*kernel .* range of int32"),
    (lambda: F.average_pooling(X, (2, 2), stride=HUGE), r"average_pooling\(.*stride .* range of int32"),
    (lambda: F.monomial(rows(2), powers=(1, 2)), "monomial: powers must have one number for each of the 1 inputs"),
    (lambda: F.monomial(rows(2), powers=(0.5,)), "monomial: argument 'powers' must be"),
    (lambda: F.monomial(rows(2), powers=(True,)), "monomial: argument 'powers' must be"),
    (lambda: F.linear_combination(rows(2), rows(2), coefficients=(1.0,)), "linear_combination: coefficients must have"),
    (lambda: F.linear_combination(rows(2), coefficients=("a",)), "linear_combination: argument 'coefficients' must be"),
    (lambda: F.linear_combination(rows(2), coefficients=(1,), constant="a"), "linear_combination: argument 'constant'"),
    (lambda: F.recomputed(rows(2), rows(3)), r"recomputed\(.*original must have the shape .* float64\[2\]"),
    (lambda: F.recomputed(rows(2), nn.Variable((2,))), r"recomputed\(.*original must have the shape and dtype"),
    (lambda: F.rand(low=2.0, high=1.0), "rand: uniform.*low must not exceed high"),
    (lambda: F.randn(sigma=-1.0), "randn: normal.*sigma >= 0 must be finite"),
    (lambda: F.randint(low=2, high=1), "randint: integers.*low must be below high"),
    (lambda: F.matmul(rows(2, 3), rows(4)), "matmul: dot: cannot multiply a of shape"),
    (lambda: F.mean(rows(2), axis=3), r"mean\(.*axis 3 is out of range"),
    (lambda: F.reduce_sum("text"), "reduce_sum: x must be"),
    (lambda: F.affine(rows(2, 3), rows(2, 3)), "affine: weight must have 3 rows"),
    (lambda: F.slice(rows(3), start=0.5), "slice: start=0.5"),
    (lambda: F.transpose(rows(2, 3), axes={1, 0}), "transpose: argument 'axes' must be"),
    (lambda: F.constant(1.0, shape=(HUGE, HUGE, HUGE)), r"constant\(.*too large for any memory"),
    (lambda: F.constant(1.0, shape=10**30), "constant: argument 'shape' is too large"),
    (lambda: F.broadcast(rows(1), shape=(HUGE, HUGE)), r"broadcast\(.*too large for any memory"),
    (lambda: F.mul_scalar(rows(2), val=np.complex128(1j)), "mul_scalar: argument 'val' must be"),
    (lambda: F.mul_scalar(rows(2), val=np.str_("1")), "mul_scalar: argument 'val' must be"),
    (lambda: F.mul_scalar(rows(2), val=10**400), "mul_scalar: argument 'val' is too large"),
    (lambda: F.add_n(), "add_n: give at least one Variable as x"),
], kind=(TypeError, ValueError), pattern="^{}")


@at_once
def test_numbers_that_are_too_large_for_a_small_dtype_are_infinite() -> Test:
    """Without a warning, for all functions alike."""
    x = from_(np.ones(1, np.float16))
    padded = F.pad(x, (1, 0), "constant", 1e300)
    for found in (yield x * 1e300, F.selu(x, scale=1e300), F.constant(1e300, (1,), "float16"), padded):
        assert np.isinf(found[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.stft(rows(4), 4, 2, 2**31), "stft: fft_size 2147483648 needs 2147483648 numbers"),
        (lambda: F.istft(rows(3, 3), rows(3, 3), 4, 2**31, 4), "istft: stride 2147483648 needs 4294967300 numbers"),
        (lambda: F.affine_grid(rows(1, 2, 3), (HUGE, HUGE)), "affine_grid: size "),
        (lambda: F.linspace(0, 1, 2**31, dtype="int32"), "num 2147483648 needs"),
        (lambda: F.pad_packed_sequence(rows(3), np.array([2, 1]), total_length=2**31), "total_length 2147483648 needs"),
        (lambda: F.random_shift(rows(2, 3), shifts=2**31), "random_shift: shifts must be"),
        (lambda: F.patch_correlation(rows(1, 2, 3, 2), rows(1, 2, 3, 2), padding=HUGE), r"patch_correlation\(padding="),
        (lambda: F.random_choice(rows(3), rows(3), shape=(HUGE, HUGE)), r"random_choice\(shape=\(\d+, \d+\)\): "),
    ],
)
def test_no_size_is_too_large_to_be_refused(call: Callable[[], Any], message: str) -> None:
    """Some were computed while the graph was built, which took all memory; of some, no argument was named."""
    with pytest.raises(ValueError, match=message):
        call()


# ---------------------------------------------------------------- any function with any arguments

Pick = Callable[[Sequence[Any]], Any]
SAMPLES: dict[str, list[Sample]] = {}
for _sample in all_samples():
    SAMPLES.setdefault(_sample.name, []).append(_sample)

NUMBERS = [
    0, 1, 2, 3, -1, -2, 64, 1000, 2**31, HUGE, 2**63, 10**30, 0.5, -0.0, 1e300, math.nan, math.inf, -math.inf,
]
ARGUMENTS = [
    *NUMBERS, None, True, False, "constant", "", "ij->ji", b"x", 1j, object(), slice(None), {}, {1}, [1, 2],
    (), (0,), (-1,), (2, 2), (0, 0), (1, 0), (2, 3), (-1, -1), (0, 1, 2), (HUGE,), (HUGE, HUGE, HUGE), (1.5,), (None,),
    ("a",), ((0,),), ((0, 1), (1, 2)), "float16", "int8", "complex64", np.longdouble, np.array([1, 2]), np.str_("1"),
]
INPUTS = [
    *[np.ones(n) for n in [(), (3,), (0,), (0, 3), (2, 0, 3), (2, 3), (3, 3), (1, 2, 4, 4), (1, 0, 4, 4), (1,) * 7]],
    np.ones((2, 3), np.int32), np.zeros((2, 3), bool), np.ones((2, 3), np.float16), np.ones((2, 3), np.uint8),
    np.zeros((0, 2), np.int32), np.full((2, 3), np.nan), np.full(3, np.inf), np.arange(6).reshape(2, 3),
    None, "text", 2.0, 3, True, [1.0, 2.0], [], np.ones(2, complex), np.array(["a"]), np.array([None]),
]  # fmt: skip


def call(name: str, pick: Pick) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for a function: those of a sample, or any; some of them exchanged, left out or added."""
    parameters = inspect.signature(getattr(F, name)).parameters.values()
    static = [p.name for p in parameters if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    if name in SAMPLES and pick([True, True, True, False]):
        sample = pick(SAMPLES[name])
        rng = np.random.default_rng(0)
        args, kwargs = [draw(rng) for draw in sample.inputs], dict(sample.arguments)
    else:
        for p in parameters:
            if p.kind is p.VAR_POSITIONAL:
                args += [pick(INPUTS) for _ in range(pick([0, 1, 2, 3]))]
            elif p.kind is p.POSITIONAL_ONLY and (p.default is p.empty or pick([True, False])):
                args.append(pick(INPUTS))
            elif p.name in static and (p.default is p.empty or pick([True, False, False])):
                kwargs[p.name] = pick(ARGUMENTS)
    for _ in range(pick([0, 1, 1, 2])):
        match pick(["input", "argument", "argument", "less", "more"]):
            case "input" if args:
                args[pick(range(len(args)))] = pick(INPUTS)
            case "argument" if static:
                kwargs[pick(static)] = pick(ARGUMENTS)
            case "less" if args:
                args.pop()
            case "more":
                args.append(pick(INPUTS))
    return [from_(a) if isinstance(a, np.ndarray) and a.dtype.kind in "fiub" else a for a in args], kwargs


def built(name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[Variable, ...]:
    """What the function gives; nothing where it refuses, by its name and an argument's."""
    function = getattr(F, name)
    try:
        out = function(*args, **kwargs)
    except (TypeError, ValueError) as error:
        message = str(error)
        assert message.startswith((f"{name}:", f"{name}(")), message
        named = any(re.search(rf"\b{p}\b", message) for p in inspect.signature(function).parameters)
        assert named or "positional argument" in message, message
        return ()
    return () if out is None else out if isinstance(out, tuple) else (out,)


def bounded(examples: int) -> Any:
    """Settings for so many examples, the same in every run."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None,
                    suppress_health_check=list(HealthCheck))


def picking(data: Any) -> Pick:
    """What picks one of several, as the data say."""
    return lambda choices: choices[data.draw(st.integers(0, len(choices) - 1))]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("examples", [200, pytest.param(1500, marks=pytest.mark.slow)])
def test_whatever_is_wrong_is_named(examples: int) -> None:
    @bounded(examples)
    @given(st.data())
    def named(data: Any) -> None:
        pick = picking(data)
        name = pick(F.names())
        built(name, *call(name, pick))

    named()


def with_gradients(name: str, args: list[Any], kwargs: dict[str, Any]) -> list[Variable]:
    """What the function gives, if it is no more than 1 MiB, and its gradients of orders 1 and 2."""
    ys = list(built(name, args, kwargs))
    if sum(y.spec.nbytes for y in ys) > 2**20:
        return []
    xs = [x for x in args if isinstance(x, Variable) and x.spec.differentiable]
    floating = [y for y in ys if y.spec.differentiable]
    if not xs or not floating:
        return ys
    first = nn.grad(floating, xs)
    second = nn.grad(first, xs)
    assert [g.spec for g in first] == [g.spec for g in second] == [x.spec for x in xs]
    return [*ys, *first, *second]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@bounded(10)
@given(st.data())
def test_whatever_can_be_built_can_be_run_and_differentiated(data: Any) -> None:
    """What is computed has the shape and dtype that were inferred. Ten functions are one program."""
    pick = picking(data)
    ys = []
    for _ in range(10):
        name = pick(F.names())
        ys += with_gradients(name, *call(name, pick))
    nn.forward_all(ys)
    for y in ys:
        assert y.d.shape == y.shape and y.d.dtype == y.dtype, y.parent
