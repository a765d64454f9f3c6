"""Every fact that an op is declared with, by numbers; every sample by every route; and that a wrong fact is found."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from backward_registry import backward
from nngrad.autodiff.forward_mode import Pushforward
from nngrad.autodiff.walk import Grad
from nngrad.functions.axes import rowwise
from nngrad.graph import Op, Variable, op
from nngrad.graph.facts import Facts
from tests.facts import Case, checks, near, shown, shows
from tests.oracle import as_tuple, is_floating
from tests.references import drawn, expected
from tests.samples import Sample, all_samples
from tests.slow import slow_but_one
from tests.together import Called, Check, Wanted, side_by_side, some_at_a_time, together

LIBRARY = Path(nn.__file__).parent
OF_OPS = [sample for sample in all_samples() if isinstance(getattr(F, sample.name), Op)]


def case_of(sample: Sample) -> Case:
    """The sample as an application of its op."""
    each: Op = getattr(F, sample.name)
    arrays = drawn(sample)
    f = as_tuple(each(*map(Variable.from_numpy_array, arrays), **sample.arguments))[0].parent
    return Case(each, arrays, f.arguments)


@pytest.mark.parametrize("sample", slow_but_one(OF_OPS, lambda s: s.name, n=4), ids=lambda s: s.id)
@together
def test_facts(sample: Sample) -> Check:
    """Every fact that the sample's op is declared with."""
    case = case_of(sample)
    yield from side_by_side([shown(name, case) for name in checks])


SHOWING = {
    "reads": "optimization_barrier", "diagonal": "tanh", "rows": "softmax", "batching": "softmax",
    "channels_last": "convolve", "linear": "sub2", "offset": "linear_combination", "weights": "linear_combination",
    "powers": "mul2", "fold": "add_n", "bounded": "tanh", "elementwise": "tanh", "broadcasts": "sub2",
    "predicate": "less", "selects": "where", "view": "reshape", "reduction": "mean", "cost": "batch_matmul",
    "moving": "transpose", "numbers": "linear_combination",
    "of_variables": "elu", "slice_keys": "split", "shape": "take_slices", "update_keys": "stack",
    "joined_by": "concatenate", "by_index": "put_slices", "adds_rows": "convolve_filter_grad",
}  # fmt: skip
"""For each check, an op whose samples show the fact."""


def test_every_kind_of_fact_is_shown_by_some_sample() -> None:
    pairs = [(name, sample) for name, op in SHOWING.items() for sample in OF_OPS if sample.name == op]
    results = some_at_a_time([shown(name, case_of(sample)) for name, sample in pairs], len(pairs))
    assert {name for (name, _), shows in zip(pairs, results, strict=True) if shows} == set(checks)


SHOWN_BY = {"forwards_inputs": "view", "unbounded": "bounded", "axes": "rows", "fuses": "moving"}
"""Checks that have another name than the fact."""

NO_CHECK = {
    "multiple_results": "a forward that returns no tuple fails at once",
    "constant": "about derivatives that are left out on purpose: tests/jax/test_from_jax.py",
    "exchanges": "about several processes: tests/nnabla/test_communicators.py",
    "lockstep": "about several processes: tests/nnabla/test_communicators.py",
    "precision": "about casts before and after it: tests/functions/test_precision.py",
    "own_way": "about speed alone, since `numbers` holds of all of them: tests/test_free_numbers.py",
}
"""Facts without a check, each with the reason."""


def test_every_fact_has_a_check() -> None:
    facts = {field.name for field in dataclasses.fields(Facts)}
    assert {fact for fact in facts if SHOWN_BY.get(fact, fact) not in checks} == set(NO_CHECK)


def declared(fact: str) -> list[str]:
    """Names of the ops that are declared to be something."""
    return [name for name in F.names() if isinstance(getattr(F, name), Op) and getattr(getattr(F, name), fact)]


HEAVY_BY_NATURE = {
    "box_averages": "sums over the samples of each bin",
    "weighted_points": "sums of gathered points",
}
"""Families of heavy ops whose sums of products are no products of matrices, each with what they are."""


def test_no_heavy_op_is_without_a_product() -> None:
    seen = {sample.name for sample in OF_OPS if getattr(F, sample.name).heavy and shows("cost", case_of(sample))}
    rest = set(declared("heavy")) - seen
    assert rest == {name for name in declared("heavy") if name.startswith(tuple(HEAVY_BY_NATURE))}


# ---------------------------------------------------------------- and in no other place

BY_NATURE: dict[str, str] = {
    "rewrite/linear.py": "algebra: each rule is about a function by name",
    "rewrite/products.py": "algebra: what products are emitted as",
    "rewrite/sums.py": "algebra: what sums are emitted as",
    "rewrite/numbers.py": "algebra: what constants and multiples are emitted as",
    "rewrite/quotients.py": "algebra: what polynomials consist of",
    "rewrite/masks.py": "the moves of a condition, which reshaping alone makes",
    "memory/rebuild.py": "sums over fan-out, which it makes and finds again",
    "execution/backward.py": "where it starts: at the inputs of sinks that give them no gradient",
    "cpu/facts.py": "tables of facts about ops that are those of one compiler",
    "cpu/substitutes.py": "a table of other forwards for one compiler",
    "inspection/recomputation.py": "the same marks",
    "jax/primitives/complex_numbers.py": "a table of the functions that stand for primitives",
    "jax/primitives/elementwise.py": "a table of the functions that stand for primitives",
    "jax/primitives/matrices.py": "a table of the functions that stand for primitives",
    "jax/primitives/movement.py": "movements that JAX writes one after another, which it makes one",
    "jax/primitives/points.py": "zeros that JAX adds to, which it leaves out",
    "jax/primitives/reductions.py": "a table of the functions that stand for primitives",
    "jax/recognition.py": "a table of the functions that stand for JAX's",
    "torch/operators.py": "a table of the functions that stand for PyTorch's operators",
}
"""Files that ask which op something is, each with the reason."""

GIVEN_ON = {"Call", "apply", "create", "created_like", "emit", "freed", "node"}
"""Functions that are given an op to apply it."""

NAMES_FAMILIES = {
    "autodiff/custom_function.py": "says where a rule is",
    "functions/docstrings.py": "completes those of nngrad's own ops",
    "functions/__init__.py": "takes what a family defines itself",
    "autodiff/walk.py": "says in an error where a rule is",
    "graph/process.py": "a module of JAX, by its name",
    "graph/op.py": "sets it",
    "training/train_step.py": "the Module of a step",
    "training/runs/fit.py": "the Module of a step",
}
"""Files that look at the module of something, each with the reason."""


def questions(tree: ast.AST) -> list[int]:
    """Lines where an op is named for something else than to be applied."""
    fine: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            fine.add(id(node.func))
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in GIVEN_ON:
                fine.update(map(id, node.args))
        elif isinstance(node, ast.Attribute):
            fine.add(id(node.value))
    named = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and getattr(n.value, "id", "") == "F"]
    return [n.lineno for n in named if id(n) not in fine and isinstance(getattr(F, n.attr), Op)]


def test_no_other_file_asks_which_op_it_is() -> None:
    asking, of_module = set(), set()
    for path in sorted(LIBRARY.rglob("*.py")):
        name = path.relative_to(LIBRARY).as_posix()
        tree = ast.parse(path.read_text())
        if questions(tree) and not name.startswith("functions/"):
            asking.add(name)
        if any([isinstance(n, ast.Attribute) and n.attr == "module" for n in ast.walk(tree)]):
            of_module.add(name)
    assert asking == set(BY_NATURE), "declare a fact in place of asking; or take a file that asks no more off the list"
    assert of_module == set(NAMES_FAMILIES)


# ---------------------------------------------------------------- every sample by every route


WITH_DERIVATIVES = [s for s in OF_OPS if s.orders and not s.surrogate and s.inputs]


@pytest.mark.parametrize("sample", slow_but_one(WITH_DERIVATIVES, lambda s: s.name, n=4), ids=lambda s: s.id)
@together
def test_routes(sample: Sample) -> Check:
    """Tangents of orders 1 and 2, forward, against the reference's; and nested gradients by the route that `nn.grad`
    takes, where rows or elements are shown to be independent, against those by the plain walk."""
    wanted, leaves = expected(sample), [Variable.from_numpy_array(x) for x in drawn(sample)]
    moving = [x for x in leaves if is_floating(x)]
    tangents = [Variable.from_numpy_array(t) for t in wanted.along]
    outputs = [y for y in as_tuple(getattr(F, sample.name)(*leaves, **sample.arguments)) if y.spec.differentiable]
    orders = min(sample.orders, 2)
    forward = [outputs]
    for _ in range(orders):
        forward.append(Pushforward()(forward[-1], moving, tangents))
    levels = []
    for walk in (nn.grad, lambda ys, x: Grad()(ys, [x], [None] * len(ys))):  # the best route, and in reverse
        level = outputs
        for _ in range(orders):
            level = [y for x in moving for y in walk(level, x)]
        levels.append(level)
    (((_, *moved, chosen, plain),),) = yield [Wanted([*forward, *levels])]
    for order, (ours, reference) in enumerate(zip(moved, wanted.tangents, strict=True), start=1):
        for a, b in zip(ours, reference, strict=True):
            near(a, b, f"forward, order {order}")
    for a, b in zip(chosen, plain, strict=True):
        near(a, b, f"nested gradients, order {orders}")


@together
def test_the_shape_of_its_input_makes_no_op_diagonal() -> Check:
    """A running sum that is declared `elementwise` is right by every route."""

    @op(elementwise=True)
    def accumulated(x, /):
        return lax.cumsum(x, x.ndim - 1) if x.ndim else x

    backward(accumulated)(lambda f, gy: F.cumsum(gy, axis=gy.ndim - 1, reverse=True))
    arrays = [np.linspace(-1.0, 1.5, 6).reshape(2, 3)]
    x = Variable.from_numpy_array(arrays[0])
    yield from side_by_side([shown(name, Case(accumulated, arrays, ())) for name in checks])

    def field(a: Any) -> Any:
        return jnp.sin(jnp.cumsum(jnp.tanh(a), 1))

    y = F.sin(accumulated(F.tanh(x)))
    (gx,) = nn.grad(y, x)
    graphs = [nn.jvp(y, x, 1.0)[0], nn.jacobian(y, x, batched=False), *nn.grad(F.sum(gx), x), *nn.hvp(y, x, 1.0)]
    (((tangent, matrix, again, product),),), ((first,),), ((second,),) = yield [
        Wanted([graphs]), Called(jax.jacobian(field), [arrays]),
        Called(jax.jacobian(jax.grad(lambda a: field(a).sum())), [arrays]),
    ]  # fmt: skip
    near(tangent, np.einsum("abcd->ab", first), "forward")
    near(matrix, first, "batched")
    near(again, np.einsum("abcd->cd", second), "nested gradients")
    near(product, np.einsum("abcd->ab", second), "forward over reverse")
    with pytest.raises(ValueError, match="cannot be shown"):
        nn.jacobian(y, x)  # that rows stay apart was not declared


# ---------------------------------------------------------------- what is wrong is found


X, SQUARE = np.linspace(-1.1, 1.7, 6).reshape(2, 3), np.linspace(0.3, 2.0, 9).reshape(3, 3)
WRONG: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
    "diagonal": (lambda x, /: x * jnp.arange(3.0), [X], {"diagonal": True}),
    "rows": (lambda x, /: jax.nn.softmax(x, 1), [X], {"axes": rowwise("()->()")}),
    "batching": (lambda x, /: lax.cumsum(x, 0), [X], {"axes": rowwise("(m,n)->(m,n)")}),
    "linear": (lambda a, b, /: a * b * b, [X, X], {"linear": "each"}),
    "fold": (lambda *x: x[-1] - sum(x[:-1]), [X, X, X], {"fold": lambda arguments, *_: arguments}),
    "elementwise": (lambda x, /: x.astype(jnp.float16), [X], {"elementwise": True}),
    "selects": (lambda c, x, y, /: jnp.where(c > 3, x, y), [np.ones((2, 3)), X, -X], {"selects": True}),
    "view": (lambda x, /: x[::-1], [X], {"view": True}),
    "reads": (lambda x, y, /: x + y, [X, X], {"reads": 1}),
    "cost": (lambda a, b, /: a @ b, [SQUARE, SQUARE], {"cost": lambda f: 10**9}),
    "moving": (lambda x, /: x * x, [X], {"fuses": "moving"}),
}


@pytest.mark.parametrize("kind", WRONG)
@together
def test_a_wrong_fact_is_found(kind: str) -> Check:
    forward, arrays, facts = WRONG[kind]
    forward.__name__ = f"wrong_{kind}"
    with pytest.raises(AssertionError):
        yield from shown(kind, Case(Op(forward, **facts), arrays, ()))
