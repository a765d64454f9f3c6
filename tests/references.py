"""What the references of all samples give, kept in files: values, gradients and tangents in float64.

    python -m tests.references              # make the files anew, or those of some families
    python -m tests.references --tenth 3    # compute every tenth reference, from the third on, and compare

To differentiate a reference three times takes JAX longer than all that the test does with it, and gives the same each
time. A file of `tests/references` has what the samples of one family should give. Each is found by a digest of the
inputs, the orders and the source of the reference with all functions of the tests that it calls; where one of these has
changed nothing is found, and the reference is computed as before. `tests/functions/test_references.py` says which
files are old.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import inspect
import itertools
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .costs import of_references
from .oracle import Arrays, as_tuple, compiled_cheaply, gradients_of, is_floating, projections
from .samples import FAMILIES, Sample, all_samples

Place = tuple[int, int]

TESTS = Path(__file__).parent
FILES = TESTS / "references"
TOGETHER = 12


class Expected(NamedTuple):
    """What a sample should give."""

    directions: list[Arrays]
    """Of the outputs, and of the gradients of each order but the last."""
    levels: list[Arrays]
    """Outputs, and the gradients of each order of what the order before gives along the directions."""
    along: Arrays
    """A direction of the floating inputs."""
    tangents: list[Arrays]
    """Of the floating outputs along it, of orders 1 and 2."""


def drawn(sample: Sample) -> Arrays:
    """The inputs."""
    rng = np.random.default_rng(7)
    return [draw(rng) for draw in sample.inputs]


# ---------------------------------------------------------------- made by JAX


def directions_of(inputs: Arrays, outputs: Sequence[Any], orders: int) -> tuple[list[Arrays], Arrays]:
    """Directions for the gradients of each order, and one for the tangents."""
    rng = np.random.default_rng(8)
    first = projections(np.random.default_rng(0), outputs, inputs, orders) if orders else []
    return first, [rng.standard_normal(x.shape) for x in inputs if is_floating(x)]


def orders_of(sample: Sample) -> int:
    """Up to which order the rule has to be the derivative."""
    return 0 if sample.surrogate else sample.orders


def computation(sample: Sample) -> Callable[..., Any]:
    """A function of the floating inputs: the levels, and the tangents."""
    inputs, orders = drawn(sample), orders_of(sample)
    places = [i for i, x in enumerate(inputs) if is_floating(x)]

    def at(*xs: Any) -> tuple[Any, ...]:
        full = list(inputs)
        for i, x in zip(places, xs, strict=True):
            full[i] = x
        return as_tuple(sample.reference(*full))

    def everything(*xs: Any) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        levels, h, tangents = [at(*xs)], at, []
        directions, along = directions_of(inputs, levels[0], orders)
        for rs in directions:
            h = gradients_of(h, rs)
            levels.append(h(*xs))

        def moved(*xs: Any) -> tuple[Any, ...]:
            return tuple([y for y in at(*xs) if is_floating(y)])

        for _ in range(min(orders, 2) if along else 0):
            moved = functools.partial(tangents_of, moved, tuple(map(jnp.asarray, along)))
            tangents.append(moved(*xs))
        return levels, tangents

    return everything


def tangents_of(h: Callable[..., Any], along: tuple[Any, ...], *xs: Any) -> Any:
    """Of `h` at `xs`."""
    return jax.jvp(h, xs, along)[1]


def made(samples: Sequence[Sample]) -> list[Expected]:
    """What samples should give, computed by one executable."""
    given = [[x for x in drawn(sample) if is_floating(x)] for sample in samples]
    computations = [computation(sample) for sample in samples]
    with jax.enable_x64(True):
        run = compiled_cheaply(lambda given: [f(*xs) for f, xs in zip(computations, given, strict=True)])
        results = run([[jnp.asarray(x) for x in xs] for xs in given])
        return [
            whole(sample, *[[[np.asarray(a) for a in level] for level in levels] for levels in result])
            for sample, result in zip(samples, results, strict=True)
        ]


def whole(sample: Sample, levels: list[Arrays], tangents: list[Arrays]) -> Expected:
    """With the directions that go with the levels."""
    directions, along = directions_of(drawn(sample), levels[0], orders_of(sample))
    return Expected(directions, levels, along, tangents)


# ---------------------------------------------------------------- known by a digest


@functools.cache
def functions_in(path: str) -> list[tuple[Place, Place, str]]:
    """The functions of a source file, the smallest first: where their bodies begin and end, and their source."""
    text, found = Path(path).read_text(), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            body = node.body if isinstance(node, ast.Lambda) else node.body[0]
            end = node.end_lineno or 0, node.end_col_offset or 0
            found.append(((body.lineno, body.col_offset), end, ast.get_source_segment(text, node) or ""))
    return sorted(found, key=lambda each: len(each[2]))


def source_of(code: types.CodeType) -> str:
    """The source of a function: two that begin on one line are told apart by where what they do is written."""
    places = [(line, column) for line, _, column, end in code.co_positions() if line and column is not None and end]
    return next(
        source for first, last, source in functions_in(code.co_filename)
        if all([first <= place <= last for place in places])
    )  # fmt: skip


def described(value: Any, seen: dict[int, int]) -> Iterator[str]:
    """What `value` is, in texts that are the same in each process and for each version of Python.

    Raises `TypeError` for what has no such description.
    """
    if id(value) in seen:
        yield f"again {seen[id(value)]}"
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        yield f"{value.dtype}{value.shape}{np.asarray(value).tobytes().hex()}"
    elif isinstance(value, bool | int | float | complex | str | type(None) | np.dtype | slice | type(...)):
        yield repr(value)
    elif isinstance(value, tuple | list | dict):
        items = value if not isinstance(value, dict) else itertools.chain(*value.items())
        yield f"{type(value).__name__} of {len(value)}"
        for item in items:
            yield from described(item, seen)
    elif isinstance(value, functools.partial):
        yield from described((value.func, value.args, value.keywords), seen)
    elif isinstance(value, types.FunctionType) and value.__code__.co_filename.startswith(str(TESTS)):
        seen[id(value)] = len(seen)
        yield from sources_of(value, seen)
    elif hasattr(value, "__wrapped__") and str(value.__module__).startswith("tests."):
        raise TypeError(f"{value!r} is made of a function of the tests: call it in a lambda")
    elif isinstance(value, types.ModuleType):
        yield value.__name__
    elif hasattr(value, "__name__"):
        yield f"{getattr(value, '__module__', '')}.{value.__name__}"
    else:
        raise TypeError(f"a {type(value).__name__} has no description")


def sources_of(f: types.FunctionType, seen: dict[int, int]) -> Iterator[str]:
    """The source of `f`, and what it finds by the names in it: variables around it, defaults, globals."""
    source = source_of(f.__code__)
    yield source
    for node in ast.walk(ast.parse(f"({source})" if source.startswith("lambda") else textwrap.dedent(source))):
        if isinstance(node, ast.Name) and node.id in f.__globals__:
            yield node.id
            yield from described(f.__globals__[node.id], seen)
    for part in (inspect.getclosurevars(f).nonlocals, f.__defaults__, f.__kwdefaults__):
        yield from described(part, seen)


def digest(sample: Sample) -> str | None:
    """What the sample's arrays are found by; None for a reference that has no description."""
    try:
        parts = [
            *described(drawn(sample), {}), str(orders_of(sample)), *described(sample.reference, {}),
            *described(np.random.default_rng(0).standard_normal(3), {}),
        ]  # fmt: skip
    except TypeError:
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- kept


@functools.cache
def kept() -> dict[str, tuple[Any, list[str]]]:
    """For each digest, the file that has it and the names of its arrays."""
    table: dict[str, tuple[Any, list[str]]] = {}
    for path in sorted(FILES.glob("*.npz")):
        file = np.load(path)
        names: dict[str, list[str]] = {}
        for name in file.files:
            names.setdefault(name.partition("/")[0], []).append(name)
        table |= {known: (file, several) for known, several in names.items()}  # two families may have one sample
    return table


def read(sample: Sample) -> Expected | None:
    """From the files, if they have it."""
    file, names = kept().get(digest(sample) or "", (None, []))
    if file is None:
        return None
    parts: dict[str, list[Arrays]] = {"levels": [], "tangents": []}
    for name in sorted(names, key=lambda name: [int(number) for number in name.split("/")[2:4]]):
        _, part, level, _, dtype = name.split("/")
        rows = parts[part]
        rows += [[] for _ in range(int(level) + 1 - len(rows))]
        rows[-1].append(file[name].view(jnp.dtype(dtype)))
    return whole(sample, parts["levels"], parts["tangents"])


@of_references
def expected(sample: Sample) -> Expected:
    """What the sample should give: from the files, or else computed."""
    return read(sample) or made([sample])[0]


def named(sample: Sample, result: Expected) -> dict[str, Any]:
    """The arrays of one sample by the names that they are kept under."""
    return {
        f"{digest(sample)}/{part}/{n}/{i}/{a.dtype.name}": a
        for part in ("levels", "tangents") for n, level in enumerate(getattr(result, part)) for i, a in enumerate(level)
    }  # fmt: skip


def computed(samples: Sequence[Sample]) -> list[Expected]:
    """What they should give, some at a time; each by itself where XLA refuses them together."""
    results = []
    for few in [samples[i : i + TOGETHER] for i in range(0, len(samples), TOGETHER)]:
        try:
            results += made(few)
        except jax.errors.JaxRuntimeError:
            results += [made([sample])[0] for sample in few]
    return results


def differences(samples: Sequence[Sample]) -> list[str]:
    """Names of the samples whose references give now something else than what is kept, or of which nothing is kept."""
    wrong = []
    for sample, now in zip(samples, computed(samples), strict=True):
        then = read(sample)
        if then is None or not agree(named(sample, now), named(sample, then)):
            wrong.append(sample.id)
    return wrong


def agree(now: dict[str, Any], then: dict[str, Any]) -> bool:
    """Whether two results are the same, up to rounding."""

    def near(a: Any, b: Any) -> bool:
        size = max(1.0, float(np.max(np.abs(a), initial=0, where=np.isfinite(a))))
        return a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, 1e-9, 1e-9 * size, equal_nan=True)

    return now.keys() == then.keys() and all([near(a, then[name]) for name, a in now.items()])


def main() -> None:
    """Make the files anew, or compare some of what they have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], metavar="FAMILY", help="by default all")
    parser.add_argument("--tenth", type=int, help="compare every tenth sample, from this one on, with what is kept")
    given = parser.parse_args()
    tenth = given.tenth
    if tenth is not None:
        chosen = [s for s in all_samples() if digest(s)][tenth % 10 :: 10]
        if wrong := differences(chosen):
            raise SystemExit("`python -m tests.references` makes these anew: " + ", ".join(wrong))
        print(f"{len(chosen)} references give what is kept")
        return
    FILES.mkdir(exist_ok=True)
    for family in given.families or FAMILIES:
        samples = [s for s in all_samples(family) if digest(s)]
        arrays = [named(s, e) for s, e in zip(samples, computed(samples), strict=True)]
        # NumPy's files know no bfloat16.
        plain = {name: a.view("u2") if a.dtype.kind == "V" else a for each in arrays for name, a in each.items()}
        np.savez_compressed(FILES / f"{family}.npz", **plain)
        print(family, len(samples), flush=True)


if __name__ == "__main__":
    main()
