"""What holds for all of the code: every op has its rule and its samples, in the places where one looks for them."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter
from pathlib import Path

import numpy as np

import backward_registry
import nngrad
import nngrad.functions as F
import nngrad_command
from backward_registry import registry
from nngrad.extend import Composite, Op
from nngrad.graph.body_op import BodyOp
from tests.public_names import RECORDED, public_names
from tests.samples import FAMILIES, all_samples
from tests.stubs import stubs

LIBRARY = Path(nngrad.__file__).parent
RULES = Path(backward_registry.__file__).parent
COMMAND = Path(nngrad_command.__file__).parent
OPS = {name: getattr(F, name) for name in F.names() if isinstance(getattr(F, name), Op)}
COMPOSITES = {name: getattr(F, name) for name in F.names() if isinstance(getattr(F, name), Composite)}
SAMPLED = {sample.name for sample in all_samples()}

NO_SAMPLE: dict[str, str] = {}
"""Functions without a sample, each with the reason."""


def sources() -> list[Path]:
    """Every source file of the library."""
    return sorted([*LIBRARY.rglob("*.py"), *RULES.rglob("*.py"), *COMMAND.rglob("*.py")])


def with_gradients() -> set[str]:
    """The families with an op that passes a gradient: most have a file of rules. One file serves the others."""
    return {op.module.rpartition(".")[2] for op in OPS.values() if registry[op.type_name].kind != "non-differentiable"}


def test_every_op_has_a_rule_in_the_file_of_its_family() -> None:
    for name, op in OPS.items():
        rule = registry.find(op)
        assert rule is not None, f"{name} has no backward rule"
        assert op.module.split(".")[0:2] == ["nngrad", "functions"], name
        family = op.module.rpartition(".")[2]
        shared = "adjoints" if family in with_gradients() else "without_gradients"
        home = family if (RULES / f"{family}.py").exists() else shared
        assert rule.module == f"backward_registry.{home}", f"{name}: {rule.module}"
        assert registry[name] is registry[op.type_name] is rule, name


def test_every_function_has_a_sample_in_the_table_of_its_family() -> None:
    assert sorted({*OPS, *COMPOSITES} - SAMPLED) == sorted(NO_SAMPLE), "without samples, and those of which it is known"
    for family in FAMILIES:
        own = {name for name, f in {**OPS, **COMPOSITES}.items() if f.module.rpartition(".")[2] == family}
        table = importlib.import_module(f"tests.samples.{family}")
        assert not own - {sample.name for sample in table.SAMPLES} - set(NO_SAMPLE), f"without samples in {family}"


LEFT_AT_THEIR_DEFAULTS = {
    # A sample has only one process and one device.
    "bcast": {"src"}, "reduce_to_process": {"dst"}, "copy": {"dst"},
    "sync_batch_normalization": {"comm", "group", "decay_rate"},
    # What forward() writes apart from the result.
    "batch_normalization": {"decay_rate"}, "fused_convolution": {"decay_rate"}, "dot": {"out"}, "scatter_nd": {"out"},
    "fused_batch_normalization": {"decay_rate", "nonlinearity"},  # which has one choice
    # At random.
    "attention": {"dropout"}, "scaled_dot_product_attention": {"dropout"},
}  # fmt: skip
"""Arguments without another value in samples."""


def test_samples_give_each_static_argument_another_value_than_its_default() -> None:
    """So that a forward or a rule that takes the default for what is given is found out."""
    left: dict[str, set[str]] = {}
    for name, f in {**OPS, **COMPOSITES}.items():
        parameters = inspect.signature(f).parameters
        left[name] = {
            k for k, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            and p.default is not p.empty and k not in ("seed", "inplace", "n_outputs")  # the last two do nothing
            and (name in OPS or "seed" not in parameters)  # no reference has the same random numbers
        }
    for sample in all_samples():
        parameters = inspect.signature(getattr(F, sample.name)).parameters
        left[sample.name] -= set(list(parameters)[: len(sample.inputs)]) | {
            k for k, v in sample.arguments.items() if k in parameters and not np.array_equal(v, parameters[k].default)
        }
    assert {name: names for name, names in left.items() if names} == LEFT_AT_THEIR_DEFAULTS


def test_no_sample_is_of_a_function_that_is_gone() -> None:
    assert set(F.names()) >= SAMPLED | set(NO_SAMPLE)


def test_every_op_with_a_derivative_is_checked_to_order_3() -> None:
    to_order_3 = {sample.name for sample in all_samples() if sample.orders >= 3}
    for name, op in OPS.items():
        rule = registry.find(op)
        if rule is None or rule.kind == "non-differentiable" or not rule.exact:
            continue
        assert name in to_order_3 or name in NO_SAMPLE or not op.input_names, name


def test_surrogate_rules_are_known_as_such() -> None:
    for sample in all_samples():
        if sample.surrogate and sample.name in OPS:
            assert not registry[sample.name].exact, sample.id


def test_no_two_ops_are_registered_by_one_name() -> None:
    counts = Counter([op.name for op, _ in registry.ops() if op.module.startswith("nngrad.")])
    assert [name for name, count in counts.items() if count > 1] == []


def test_families_are_mirrored() -> None:
    names = set(FAMILIES)
    assert names == set(F.FAMILIES)
    for family in names:
        for folder in (LIBRARY / "functions", Path(__file__).parents[1] / "samples"):
            assert (folder / f"{family}.py").exists(), f"{folder}/{family}.py"
        has_rules = (RULES / f"{family}.py").exists()
        assert not has_rules or family in with_gradients(), f"{family}: no gradient needs no file"


def test_what_the_families_define_is_what_f_has() -> None:
    defined = {}
    for family in F.FAMILIES:
        module = importlib.import_module(f"nngrad.functions.{family}")
        for name, value in vars(module).items():
            if isinstance(value, Op | Composite) and value.module == module.__name__:
                defined[name] = value
    assert {name: getattr(F, name) for name in F.names()} == defined


def test_stubs_are_current() -> None:
    for path, text in stubs().items():
        assert path.read_text() == text, f"{path} is out of date: run `python -m tests.stubs`"


DERIVATIVES = {"vjp", "jvp", "grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian", "linearize"}
ASK_JAX = {"graph/by_jax.py", "jax/unopened.py"}
"""The files that may ask JAX for a derivative: of functions of arrays, and of what is left to it as a whole."""
ASK_IT = {
    "execution/lower.py",  # for JAX, which asks for that of a function of nngrad's
    "functions/traced/__init__.py",  # for nngrad.jax
    "functions/traced/jax_derivatives.py",  # of JAX functions of the user's own
    "functions/traced/structure.py",  # whether two functions whose derivatives are set have the same
}
"""The files that ask `by_jax` for one, and of what."""


def taken_of(path: Path, modules: tuple[str, ...]) -> list[tuple[str, str]]:
    """What a file takes of modules by those names, and what it imports from them, with the line of each."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found.append((node.attr, f"{path}, line {node.lineno}"))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jax":
            found += [(f"{node.module}: {alias.name}", f"{path}, line {node.lineno}") for alias in node.names]
    return found


def test_no_derivative_is_left_to_jax() -> None:
    asked = DERIVATIVES | {f"jax: {name}" for name in DERIVATIVES}
    asking = {path for path in sources() for name, _ in taken_of(path, ("jax",)) if name in asked}
    assert {path.relative_to(LIBRARY).as_posix() for path in asking} == ASK_JAX


def test_only_what_wraps_jax_functions_uses_their_derivatives() -> None:
    users = [path for path in sources() if "by_jax import" in path.read_text()]
    assert {path.relative_to(LIBRARY).as_posix() for path in users} == ASK_IT
    users = [path for path in sources() if "jax_derivatives import" in path.read_text()]
    assert {"/".join(path.parts[-2:]) for path in users} == {
        "traced/__init__.py",
        "traced/jax_functions.py",
        "backward_registry/jax_derivatives.py",
    }


FACTS = {"finfo", "iinfo", "issubdtype", "floating", "promote_types"}
"""What rules may ask JAX for: facts about dtypes."""


def test_rules_are_written_in_terms_of_functions() -> None:
    taken = [each for path in RULES.glob("*.py") for each in taken_of(path, ("jax", "jnp", "lax"))]
    assert [each for each in taken if each[0] not in FACTS] == []


# ---------------------------------------------------------------- ops with bodies

BODY_OPS = {op for op, _ in registry.ops() if isinstance(op, BodyOp)}


def test_ops_with_bodies_have_rules_of_their_own() -> None:
    for op in BODY_OPS:
        rule = registry.find(op)
        assert rule is not None and (rule.function == op.backward or rule.kind == "non-differentiable"), op.name
    blocks = {"body", "bodies", "matrix", "residual", "field"}
    others = [op for op, _ in registry.ops() if op not in BODY_OPS]
    assert [op.name for op in others if not blocks.isdisjoint(op.argument_names)] == [], "they are no BodyOp"


def test_public_names_and_signatures_are_those_that_are_recorded() -> None:
    recorded, there = set(RECORDED.read_text(encoding="utf-8").splitlines()), set(public_names())
    gone, new = sorted(recorded - there), sorted(there - recorded)
    assert not gone and not new, "\n".join([
        "public names changed (docs/compatibility.md: what is promised); `python -m tests.public_names` accepts this:",
        *[f"- {line}" for line in gone], *[f"+ {line}" for line in new],
    ])  # fmt: skip
