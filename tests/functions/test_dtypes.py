"""In what dtypes graphs compute: what arrays, numbers and contexts decide, and what is warned of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF

from_ = nn.Variable.from_numpy_array
WIDE = np.ones(2)


@pytest.fixture(autouse=True)
def parameters_of_its_own() -> Iterator[None]:
    """Whatever other tests have left."""
    with nn.parameter_scope("dtypes", scope=OrderedDict()):
        yield


def leaf(dtype: str, need_grad: bool = False) -> nn.Variable:
    """A leaf of two ones."""
    return from_(np.ones(2), need_grad=need_grad, dtype=dtype)


# ---------------------------------------------------------------- arrays that meet Variables

MEETINGS: dict[str, Callable[[nn.Variable, Any], nn.Variable]] = {
    "+": lambda x, a: x + a,
    "reflected -": lambda x, a: a - x,
    "/": lambda x, a: x / a,
    "**": lambda x, a: x**a,
    "@": lambda x, a: x @ a,
    "mul2": F.mul2,
    "mul2, array first": lambda x, a: F.mul2(a, x),
    "concatenate": lambda x, a: F.concatenate(a, x, a),
    "where": lambda x, a: F.where(from_(np.ones(2, np.int32)), a, x),
    "affine, optional input": lambda x, a: F.affine(F.reshape(x, (1, 2)), F.reshape(x, (2, 1)), a[:1]),
    "jax_function": lambda x, a: F.jax_function(jnp.multiply)(a, x),
    "squared_error": F.squared_error,
}


@pytest.mark.parametrize("given", ["float64", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("meet", MEETINGS.values(), ids=MEETINGS)
def test_an_array_takes_the_dtype_of_the_variables(meet: Any, dtype: str, given: str) -> None:
    x = leaf(dtype)
    assert meet(x, np.ones(2, given)).dtype == x.dtype


def test_numbers_meet_float64_in_full_precision() -> None:
    x = leaf("float64")
    tenths = [0.1, 0.1]
    for y in (F.add2(x, 0.1), F.add2(tenths, x), x + tenths):
        assert (y.d == 1.1).all()


def test_without_floating_variables_arrays_keep_their_dtype() -> None:
    whole = leaf("int32")
    assert (whole + WIDE).dtype == F.add2(WIDE, WIDE).dtype == F.exp(WIDE).dtype == np.float64
    numbers = [0.5, 1.0]
    assert (whole + numbers).dtype == F.add2(whole, 0.5).dtype == (whole + np.float64(0.5)).dtype == np.float32


def test_gradients_at_outputs_take_the_dtype_of_the_outputs() -> None:
    x = leaf("float32", need_grad=True)
    (gx,) = nn.grad([x * x], [x], grad_outputs=[WIDE])
    assert {y.dtype for f in nn.graph.functions_of([gx]) for y in (*f.inputs, *f.outputs)} == {np.dtype("float32")}


# ---------------------------------------------------------------- contexts


def test_float64_arrays_become_float32_in_a_context_of_nnabla() -> None:
    wide = from_(WIDE, need_grad=True)
    with nn.context_scope(nn.get_extension_context("cpu")):
        assert from_(WIDE).dtype == F.exp(WIDE).dtype == nn.NdArray.from_numpy_array(WIDE).dtype == np.float32
        assert (leaf("int32") + WIDE).dtype == np.float32
        assert nn.parameter.get_parameter_or_create("w", initializer=WIDE).dtype == np.float32
        # what somebody asked for, and what there is, stays
        assert from_(WIDE, dtype="float64").dtype == wide.dtype == (wide + WIDE).dtype == (wide / 0).dtype == np.float64
        assert from_(np.arange(2)).dtype == np.int64
        y = F.sum(F.jax_function(jnp.multiply)(wide, 2.0))
        y.backward(loss_scale=2.0)
        assert nn.grad([y], [wide], loss_scale=2.0)[0].dtype == y.dtype == np.float64
    assert from_(WIDE).dtype == np.float64


# ---------------------------------------------------------------- data that widen a graph


def test_data_that_widen_parameters_are_warned_of_at_the_users_line() -> None:
    data = from_(np.ones((3, 2)))
    message = r"^affine: the input is float64\[3, 2\], so the parameters are float64.*np.float32"
    with pytest.warns(UserWarning, match=message) as caught:
        PF.affine(data / 255, 4)
    (warning,) = caught
    assert warning.filename == __file__


def test_layers_take_the_dtype_of_their_input() -> None:
    """The suite turns warnings into errors: float64 that was asked for, or that follows from a float64 parameter."""
    asked = nn.Variable.from_numpy_array(np.ones((3, 2)), dtype="float64")
    moving = nn.Variable.from_numpy_array(np.ones((3, 2)), need_grad=True)
    with nn.parameter_scope("wide", scope=OrderedDict()):
        ys = [PF.affine(F.tanh(PF.affine(x, 4, name=f"{i}a")), 1, name=f"{i}b") for i, x in enumerate((asked, moving))]
        ys.append(PF.batch_normalization(nn.Variable((3, 2), dtype="float64"), name="c"))
        dtypes = {p.dtype.name for p in nn.get_parameters(grad_only=False).values()}
        narrow = PF.affine(nn.Variable((3, 2)), 4, name="narrow")
    assert dtypes == {"float64"} == {y.dtype.name for y in ys} and narrow.dtype == np.float32


def test_what_is_meant_is_not_warned_of() -> None:
    w, wide, data = leaf("float32", need_grad=True), leaf("float64", need_grad=True), from_(WIDE)
    _ = leaf("float32") * data, wide * leaf("float32"), wide * data, w * wide, F.cast(w, "float64") * data
    with nn.no_grad():
        h = w * 2
    _ = h * data
    _ = w * WIDE
