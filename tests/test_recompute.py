"""Recompute instead of keep: the same gradients, less memory, and a compiled program that does recompute."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.execution.compiled import executable_of
from nngrad.execution.interpret import interpret
from nngrad.execution.lower import linearize, lower
from nngrad.gradient.recompute import mirror, predicted_peak
from nngrad.gradient.recompute.folds import folded
from nngrad.gradient.recompute.liveness import in_order
from nngrad.gradient.recompute.rebuild import rebuild
from nngrad.gradient.recompute.segments import binomial, in_sequence, partly, slots_for, uniform
from nngrad.graph import Function, Variable, functions_of
from nngrad.graph.leaf import arrays_of
from tests.test_properties import SETTINGS, Recipe, agree, draw_leaves, follow, recipes

LAYERS, BATCH, WIDTH = 12, 64, 16


def is_product(f: Function) -> bool:
    """A predicate, as MXNet's mirror function: whether `f` is a matrix product."""
    return f.name == "batch_matmul"


POLICIES: dict[str, Any] = {
    "sqrt": "sqrt",
    "auto": "auto",
    "two levels": nn.Segments(2),
    "five levels": nn.Segments(5),
    "a tenth more": nn.LeastMemory(0.1),
    "all but products": lambda f: not is_product(f),
    "everything": lambda f: True,
    "half a budget": nn.MemoryBudget(40_000),
}


def chain(
    layers: int = LAYERS,
    batch: int = BATCH,
    width: int = WIDTH,
    mark: Callable[[int], bool] = lambda i: False,
    dtype: str = "f",
) -> tuple[Variable, list[Variable]]:
    """The loss of a chain of dense layers, and its weights."""
    rng = np.random.default_rng(3)
    x = Variable.from_numpy_array(rng.normal(size=(batch, width)).astype(dtype))
    weights = [
        Variable.from_numpy_array(rng.normal(0, width**-0.5, (width, width)).astype(dtype), need_grad=True)
        for _ in range(layers)
    ]
    h = x
    for i, w in enumerate(weights):
        with nn.recompute(mark(i)):
            h = F.tanh(F.affine(h, w))
    return F.sum(h**2), weights


def compiled(outputs: Sequence[Variable]) -> Any:
    """The graph of `outputs` compiled by XLA, from shapes alone."""
    program = linearize(outputs).program
    return jax.jit(lower(program)).lower(*[s.abstract() for s in program.leaves]).compile()


def temporaries(executable: Any) -> int:
    """Bytes of temporaries, by the compiler's own account."""
    return int(executable.memory_analysis().temp_size_in_bytes)


def products(executable: Any) -> int:
    """Matrix products in the compiled program."""
    return int(executable.as_text().count(" dot("))


def values_of(variables: Sequence[Variable]) -> list[np.ndarray[Any, Any]]:
    """The values, computed op by op."""
    return [np.asarray(a) for a in interpret(variables, {})]


# ---------------------------------------------------------------- it survives the compiler


def test_the_compiled_program_computes_again_and_takes_less_memory() -> None:
    loss, weights = chain()
    plain = compiled([loss, *nn.grad(loss, weights)])
    again = compiled([loss, *nn.grad(loss, weights, recompute="sqrt")])
    assert products(plain) == 3 * LAYERS - 1
    assert products(again) > products(plain) + LAYERS / 2, "XLA has merged the recomputation with the forward pass"
    assert temporaries(again) < 0.6 * temporaries(plain)


@pytest.mark.parametrize("levels", [1, 2])
def test_more_levels_take_less_memory(levels: int) -> None:
    loss, weights = chain(64, 64, 8)
    fewer, more = ([loss, *nn.grad(loss, weights, recompute=nn.Segments(n))] for n in (levels, levels + 1))
    assert predicted_peak(more) < predicted_peak(fewer)
    assert temporaries(compiled(fewer)) == pytest.approx(predicted_peak(fewer), rel=0.1)


def test_a_deep_chain_takes_logarithmic_memory() -> None:
    layers, batch, width = 1000, 16, 2
    loss, weights = chain(layers, batch, width)
    plain = predicted_peak([loss, *nn.grad(loss, weights)])
    activation = batch * width * 4

    def peak(policy: Any) -> int:
        return predicted_peak([loss, *nn.grad(loss, weights, recompute=policy)])

    assert plain >= layers * activation
    assert peak("sqrt") <= 1.2 * 2 * layers**0.5 * activation
    assert peak(nn.Segments(2)) <= 0.1 * plain
    assert peak(nn.Segments(9)) <= 1.2 * np.log2(layers) * activation


def test_shared_weights_are_summed_as_they_come() -> None:
    rng = np.random.default_rng(0)
    w = Variable.from_numpy_array(rng.normal(0, 0.1, (64, 64)).astype("f"), need_grad=True)
    h = Variable.from_numpy_array(rng.normal(size=(8, 64)).astype("f"))
    for _ in range(24):
        h = F.tanh(F.affine(h, w))
    loss = F.sum(h)
    plain, again = ([loss, *nn.grad(loss, [w], recompute=p)] for p in (None, "sqrt"))
    assert temporaries(compiled(again)) < 0.4 * temporaries(compiled(plain))
    agree(values_of(again), values_of(plain), 1e-5)


# ---------------------------------------------------------------- the same gradients


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
@pytest.mark.filterwarnings("ignore:MemoryBudget")
def test_gradients_are_those_without_a_policy(policy: Any) -> None:
    loss, weights = chain(dtype="d")
    first = nn.grad(loss, weights)
    plain = values_of([*first, *nn.grad(F.add_n(*[F.sum(g * g) for g in first]), weights)])
    first = nn.grad(loss, weights, recompute=policy)
    again = values_of([*first, *nn.grad(F.add_n(*[F.sum(g * g) for g in first]), weights, recompute=policy)])
    agree(again, plain, 1e-12)


def forced(outputs: list[Variable], leaves: list[Variable], kind: int, through: bool = False) -> list[Variable]:
    """The gradients by one of many plans, whether or not it saves memory; `through` the model if that can be."""
    gradients = nn.grad(outputs, leaves, recompute=False)
    known = functions_of(outputs)
    emitted = [f for f in functions_of(gradients) if f not in set(known)]
    fold = folded(outputs, known, gradients, emitted) if through else None
    forward = in_sequence(in_order(outputs), outputs, emitted) if fold is None else fold.forward
    dropped = frozenset(f for f in forward.droppable if kind % 3 or f.name not in ("tanh", "mul2"))
    cuts = [uniform(2), uniform(5), binomial(1, 3), binomial(2, 2), binomial(3, 3), partly(uniform(2), 0.6)]
    plans = [forward.plan(*cut, dropped) for cut in cuts] + [mirror.blocks(known, dropped)]
    if fold is not None:
        return fold.rebuilt(outputs, gradients, plans[kind % len(cuts)], None).gradients
    return rebuild(known, outputs, gradients, plans[kind % len(plans)]).gradients


@settings(SETTINGS, max_examples=80)
@given(recipes(), st.integers(0, 20), st.integers(0, 20), st.booleans(), st.sampled_from([np.float64, np.float32]))
def test_any_plan_gives_the_same_gradients_on_random_graphs(
    recipe: Recipe, one: int, two: int, through: bool, dtype: Any
) -> None:
    leaves = [Variable.from_numpy_array(x) for x in draw_leaves(recipe, dtype)]
    outputs = follow(recipe, leaves, ours=True)

    def both(kinds: tuple[int, int] | None) -> list[Any]:
        first = nn.grad(outputs, leaves) if kinds is None else forced(outputs, leaves, kinds[0])
        above = [g * g * 0.5 + g for g in first]
        second = nn.grad(above, leaves) if kinds is None else forced(above, leaves, kinds[1], through)
        return values_of([*first, *second])

    agree(both((one, two)), both(None), 1e-12 if dtype is np.float64 else 1e-6)


@settings(SETTINGS, max_examples=8)
@given(recipes(), st.integers(0, 20))
def test_any_plan_gives_the_same_gradients_compiled(recipe: Recipe, kind: int) -> None:
    leaves = [Variable.from_numpy_array(x) for x in draw_leaves(recipe)]
    outputs = follow(recipe, leaves, ours=True)
    program = linearize(forced(outputs, leaves, kind))
    agree(executable_of(program.program)(*arrays_of(program.leaves)), values_of(nn.grad(outputs, leaves)), 1e-11)


def test_gradients_with_respect_to_what_is_computed_again() -> None:
    loss, weights = chain(dtype="d")
    middle = functions_of([loss])[LAYERS].outputs[0]
    plain, again = (
        nn.grad(nn.grad(loss, weights, recompute=p)[0], [middle, weights[0]], recompute=False) for p in (None, "sqrt")
    )
    assert np.abs(values_of(plain)[0]).max() > 1e-3
    agree(values_of(again), values_of(plain), 1e-12)


def test_gradients_stop_where_they_did() -> None:
    def second(policy: Any) -> list[Any]:
        loss, weights = chain(dtype="d")
        functions_of([loss])[LAYERS].outputs[0].need_grad = False
        first = nn.grad(loss, weights, recompute=policy)
        return values_of([*first, *nn.grad(F.sum(first[-1] ** 2), weights, recompute=False)])

    agree(second("sqrt"), second(None), 1e-12)


# ---------------------------------------------------------------- further differentiation


ACTIVATIONS = {"leaky": lambda h: F.leaky_relu(h, 0.2), "tanh": F.tanh, "softplus": F.softplus}


def critic(policy: Any, depth: int = 12, activation: str = "leaky") -> tuple[Variable, list[Variable]]:
    """A gradient penalty on a chain of dense layers, and its weights."""
    rng = np.random.default_rng(1)
    x = Variable.from_numpy_array(rng.normal(size=(BATCH, WIDTH)).astype("f"))
    weights = [
        Variable.from_numpy_array(rng.normal(0, 0.3, (WIDTH, WIDTH)).astype("f"), need_grad=True) for _ in range(depth)
    ]
    h = x
    for w in weights:
        h = ACTIVATIONS[activation](F.affine(h, w))
    (slope,) = nn.grad(F.sum(h), [x], recompute=policy)
    return F.mean((F.sum(slope**2, axis=1) ** 0.5 - 1) ** 2) + F.mean(h), weights


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gradient_of_a_gradient_saves_memory_too(activation: str) -> None:
    each = ("sqrt", nn.Segments(2))
    asked = {"none": (None, None), "inherited": ("sqrt", None), "each": each, "last": (None, "sqrt")}
    steps = {}
    for name, (first, second) in asked.items():
        loss, weights = critic(first, 16, activation)
        outputs = [loss, *nn.grad(loss, weights, recompute=second)]
        steps[name] = compiled(outputs), arrays_of(linearize(outputs).leaves)
    plain, arrays = steps.pop("none")
    for name, (executable, leaves) in steps.items():
        # Where only the last gradient is mirrored, the loss needs all of the forward pass for the first.
        assert temporaries(executable) < (0.75 if name == "last" else 0.65) * temporaries(plain), name
        assert products(executable) > products(plain) + 16, name
        agree(executable(*leaves), plain(*arrays), 1e-5)


def test_a_third_gradient_of_mirrored_ones_is_right() -> None:
    def third(policy: Any) -> list[Any]:
        loss, weights = chain(6, dtype="d")
        x = next(f.inputs[0] for f in functions_of([loss]) if is_product(f))
        for _ in range(2):
            (gx,) = nn.grad(loss, [x], recompute=policy)
            loss = F.sum(gx**2)
        return values_of(nn.grad(loss, weights, recompute=policy))

    plain = third(False)
    for policy in ("sqrt", nn.Segments(3), is_product):
        agree(third(policy), plain, 1e-11)


# ---------------------------------------------------------------- never worse


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
@pytest.mark.filterwarnings("ignore:MemoryBudget")
def test_no_policy_makes_it_worse(policy: Any) -> None:
    for layers in (1, 2, 5, 12):
        loss, weights = chain(layers)
        plain = predicted_peak([loss, *nn.grad(loss, weights)])
        assert predicted_peak([loss, *nn.grad(loss, weights, recompute=policy)]) <= plain


def test_where_nothing_is_gained_the_plain_graph_comes_back() -> None:
    loss, weights = chain(1)
    (gw,) = nn.grad(loss, weights, recompute="sqrt")
    assert not [f for f in functions_of([gw]) if f.name in ("after", "recomputed")]


def test_a_budget_takes_no_more_recomputation_than_it_needs() -> None:
    loss, weights = chain(24)
    plain = predicted_peak([loss, *nn.grad(loss, weights)])

    def again(budget: float) -> tuple[int, int]:
        gradients = nn.grad(loss, weights, recompute=nn.MemoryBudget(int(budget)))
        outputs = [loss, *gradients]
        return predicted_peak(outputs), sum(is_product(f) for f in functions_of(outputs))

    assert again(plain)[1] == 3 * 24 - 1
    some, more = again(0.7 * plain), again(0.4 * plain)
    assert some[0] <= 0.7 * plain and more[0] <= 0.4 * plain
    assert 3 * 24 - 1 < some[1] < more[1]
    with pytest.warns(RuntimeWarning, match="no plan was found that fits") as caught:
        again(10)
        loss.forward()
        loss.backward(recompute=nn.MemoryBudget(10))
    assert [Path(w.filename).name for w in caught] == ["test_recompute.py"] * 2


def test_a_share_of_arithmetic_is_not_exceeded() -> None:
    loss, weights = chain(24)
    for share in (0.1, 0.2, 1 / 3):
        outputs = [loss, *nn.grad(loss, weights, recompute=nn.LeastMemory(share))]
        count = sum(is_product(f) for f in functions_of(outputs))
        assert 3 * 24 - 1 < count <= (3 * 24 - 1) * (1 + share)


# ---------------------------------------------------------------- what is computed again


def test_a_predicate_says_what_is_computed_again() -> None:
    loss, weights = chain()
    gradients = nn.grad(loss, weights, recompute=lambda f: f.name == "tanh")
    count = sum(is_product(f) for f in functions_of([loss, *gradients]))
    assert count == 3 * LAYERS - 1, "no product was to be computed again"


def test_listed_variables_are_kept_and_the_rest_is_computed_again() -> None:
    loss, weights = chain()
    kept = [f.outputs[0] for f in functions_of([loss]) if f.name == "tanh"][2::3]
    gradients = nn.grad(loss, weights, recompute=kept)
    functions = functions_of([loss, *gradients])
    replaced = {f.inputs[1] for f in functions if f.name == "recomputed"}
    assert replaced and not replaced & set(kept)
    assert temporaries(compiled([loss, *gradients])) < 0.7 * temporaries(compiled([loss, *nn.grad(loss, weights)]))


def test_marked_blocks_are_computed_again() -> None:
    plain, weights = chain()
    expected = temporaries(compiled([plain, *nn.grad(plain, weights)]))

    h = Variable((BATCH, WIDTH))
    for i in range(0, LAYERS, 3):
        with nn.recompute():
            for w in weights[i : i + 3]:
                h = F.tanh(F.affine(h, w))
    loss = F.sum(h**2)
    assert temporaries(compiled([loss, *nn.grad(loss, weights)])) < 0.7 * expected
    unmarked = nn.grad(loss, weights, recompute=False)
    assert sum(is_product(f) for f in functions_of([loss, *unmarked])) == 3 * LAYERS - 1


def test_random_functions_have_the_same_mask() -> None:
    rng = np.random.default_rng(3)
    x = Variable.from_numpy_array(rng.normal(size=(BATCH, WIDTH)))
    weights = [Variable.from_numpy_array(rng.normal(0, 0.3, (WIDTH, WIDTH)), need_grad=True) for _ in range(8)]
    h = x
    for w in weights:
        h = F.dropout(F.tanh(F.affine(h, w)), 0.4)
    loss = F.sum(h**2)

    def both_orders(policy: Any) -> list[Variable]:
        first = nn.grad(loss, weights, recompute=policy)
        (slope,) = nn.grad(loss, [x], recompute=policy)
        return [*first, *nn.grad(F.sum(slope**2), weights, recompute=policy)]

    plain, again = both_orders(False), both_orders("sqrt")
    assert [f for f in functions_of(again) if f.name == "after"]
    for _ in range(2):
        results = nn.compile([*plain, *again])()  # one draw of keys for both
        agree(results[16:], results[:16], 1e-12)


def test_batch_statistics_are_updated_once() -> None:
    def statistics(policy: Any) -> list[np.ndarray[Any, Any]]:
        nn.clear_parameters()
        nn.seed(5)
        h = Variable.from_numpy_array(np.random.default_rng(2).normal(size=(32, 8)).astype("f"))
        for i in range(8):
            h = F.tanh(PF.batch_normalization(PF.affine(h, 8, name=f"a{i}"), axes=[1], name=f"b{i}"))
        loss = F.sum(h**2)
        for _ in range(2):
            loss.forward()
            loss.backward(recompute=policy)
        values = [p.d.copy() for p in nn.get_parameters(grad_only=False).values()]
        return [*values, *[p.g.copy() for p in nn.get_parameters().values()]]

    agree(statistics("sqrt"), statistics(None), 1e-5)
    nn.clear_parameters()


# ---------------------------------------------------------------- every route


def test_backward_recomputes_and_shares_executables() -> None:
    nn.executables.clear()

    def gradients(policy: Any) -> list[np.ndarray[Any, Any]]:
        loss, weights = chain(9)
        loss.forward()
        loss.backward(recompute=policy)
        return [w.g.copy() for w in weights]

    plain = gradients(None)
    misses = [nn.executables.info().misses]
    for policy in ("sqrt", "sqrt", nn.Segments(2), None):
        agree(gradients(policy), plain, 1e-5)
        misses.append(nn.executables.info().misses)
    assert [b - a for a, b in itertools.pairwise(misses)] == [1, 0, 1, 0]


def test_a_marked_graph_built_anew_compiles_once() -> None:
    def step() -> None:
        loss, weights = chain(6, mark=lambda i: i % 2 == 0)
        loss.forward()
        loss.backward()
        assert weights[0].g.any()

    step()
    misses = nn.executables.info().misses
    step()
    assert nn.executables.info().misses == misses


def test_training_steps_recompute() -> None:
    def losses(policy: Any) -> tuple[list[float], int]:
        loss, weights = chain()
        step = nn.train_step(loss, weights, S.Sgd(lr=1e-3), recompute=policy)
        return [float(step()) for _ in range(3)], products_of(step)

    def products_of(step: Any) -> int:
        solver, parameters = step._solver, [p.cell.raw() for p in step._variables]
        state = solver._flat_state()
        return products(step._executable.lower(parameters, state, solver._rate, (), arrays_of(step._live)).compile())

    (plain, count), (again, more) = losses(None), losses("sqrt")
    np.testing.assert_allclose(again, plain, rtol=1e-5)
    assert more > count


def test_a_jax_function_of_it_can_be_transformed() -> None:
    loss, weights = chain(6)
    plain, again = (nn.grad(loss, weights, recompute=p) for p in (None, "sqrt"))
    f, g = nn.to_jax(plain[0], weights[0]), nn.to_jax(again[0], weights[0])
    w = weights[0].d
    agree([jax.jit(g)(w)], [jax.jit(f)(w)], 1e-5)
    agree([jax.grad(lambda a: g(a).sum())(w)], [jax.grad(lambda a: f(a).sum())(w)], 1e-4)
    agree([jax.vmap(g)(np.stack([w, w]))], [jax.vmap(f)(np.stack([w, w]))], 1e-5)


SHARDED = """
import jax, numpy as np, nngrad as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.test_recompute import agree, chain, products, temporaries
from nngrad.graph import leaves_of

loss, weights = chain()
(x,) = [leaf for leaf in leaves_of([loss]) if not leaf.need_grad]
mesh = Mesh(np.array(jax.devices()), ("batch",))
rows, whole = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
found = []
for policy in (None, "sqrt"):
    f = nn.to_jax([loss, *nn.grad(loss, weights, recompute=policy)], x)
    jitted = jax.jit(f, in_shardings=rows, out_shardings=whole)
    executable = jitted.lower(jax.ShapeDtypeStruct(x.shape, x.dtype)).compile()
    found.append((executable(jax.device_put(x.d, rows)), temporaries(executable), products(executable)))
(plain, most, few), (again, least, many) = found
agree(again, plain, 1e-5)
assert len(jax.devices()) == 2 and least < 0.7 * most and many > few, found[1:]
"""


def test_it_saves_memory_on_each_of_several_devices() -> None:
    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join([root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- duplicates and zeros


def test_equal_gradients_are_distinct_variables_at_no_cost() -> None:
    a, b = Variable((32, 32), need_grad=True), Variable((32, 32), need_grad=True)
    y = F.sum(F.tanh(a + b) ** 2)
    one, two = nn.grad(y, [a, b])
    assert one is not two and one.data is not two.data
    alone, both = compiled([one]), compiled([one, two])
    flops = [executable.cost_analysis()["flops"] for executable in (alone, both)]
    assert flops[0] == flops[1] > 0


def test_a_gradient_that_is_zero_costs_no_arithmetic() -> None:
    x, w = Variable((16, 16), need_grad=True), Variable((16, 16), need_grad=True)
    h = F.tanh(F.affine(x, w))
    gx, gw = nn.grad(F.sum(h * 0.0) + F.sum(F.unlink(h)) + F.sum(F.greater_scalar(h, val=0.5) * 0.0), [x, w])
    assert {f.name for f in functions_of([gx, gw])} <= {"constant", "identity"} and gx is not gw
    executable = compiled([gx, gw])
    assert products(executable) == 0 and not executable.cost_analysis().get("flops")


def test_hooks_see_the_plain_gradient() -> None:
    loss, weights = chain(9)
    seen: list[str] = []
    loss.forward()
    loss.backward(recompute="sqrt", function_post_hook=lambda f: seen.append(f.name))
    assert seen and "after" not in seen
    assert weights[0].g.any()


# ---------------------------------------------------------------- after and recomputed


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint32", "int8", "bool"])
def test_after_changes_no_bit(dtype: str) -> None:
    special = np.array([0, 1, -0.0, np.inf, -np.inf, np.nan, 3, 7])
    with np.errstate(invalid="ignore"):
        x = special.astype(dtype)
    for token in ([np.nan], [np.inf, 1.0], [-0.0], np.array([-1]), np.array([True]), np.zeros((0, 2))):
        y = F.after(Variable.from_numpy_array(x), Variable.from_numpy_array(np.asarray(token)))
        assert nn.compile(y)().tobytes() == x.tobytes()


def test_after_survives_the_compiler() -> None:
    x = Variable((32, 32))
    w = Variable((32, 32))
    y = F.affine(x, w)
    twice = F.affine(x, F.after(w, y))
    assert products(compiled([y + F.affine(x, w)])) == 1
    assert products(compiled([y + twice])) == 2


# ---------------------------------------------------------------- schedules and errors


@pytest.mark.parametrize(("levels", "slots"), [(1, 1), (1, 4), (2, 5), (3, 4), (9, 3)])
def test_binomial_schedules_have_the_steps_that_the_theory_says(levels: int, slots: int) -> None:
    from math import comb

    shares, tree = binomial(levels, slots)
    assert sum(shares) == comb(slots + levels, levels + 1)
    assert slots_for(levels, sum(shares)) == slots
    assert (tree.first, tree.end) == (0, len(shares))


@pytest.mark.parametrize(
    ("policy", "error", "match"),
    [
        ("cube", ValueError, "'cube' is not one of"),
        (3, TypeError, "recompute: expected None"),
        ([1], TypeError, "recompute: expected None"),
        (nn.MemoryBudget(-1), ValueError, "number of bytes"),
        (nn.Segments(0), ValueError, "levels from 1 to 64"),
        (nn.Segments(True), ValueError, "levels from 1 to 64"),
        (nn.LeastMemory(float("nan")), ValueError, "share"),
    ],
)
def test_errors(policy: Any, error: type[Exception], match: str) -> None:
    loss, weights = chain(2)
    with pytest.raises(error, match=match):
        nn.grad(loss, weights, recompute=policy)
    with pytest.raises(TypeError, match="on: expected"), nn.recompute(1):  # type: ignore[arg-type]
        pass


def test_no_policy_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss, weights = chain(3)
        nn.grad(loss, weights, recompute="auto")
