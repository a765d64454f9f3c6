"""Which primitives JAX has: `python -m tests.opening.primitives` prints those of the JAX that is installed, and
`... --write` enters them into `primitives.csv`.
"""

from __future__ import annotations

import csv
import sys
from importlib import import_module
from pathlib import Path

import jax

MODULES = (
    "jax.numpy", "jax.lax", "jax.lax.linalg", "jax.nn", "jax.random", "jax.image", "jax.ops", "jax.ffi",
    "jax.scipy.fft", "jax.scipy.linalg", "jax.scipy.ndimage", "jax.scipy.optimize", "jax.scipy.signal",
    "jax.scipy.sparse.linalg", "jax.scipy.special", "jax.scipy.stats", "jax.custom_batching",
    "jax.custom_derivatives", "jax.debug",
)  # fmt: skip
"""What registers the primitives that users' functions are traced to."""

TABLE = Path(__file__).with_name("primitives.csv")


def version() -> str:
    """The version of JAX, as the table has it."""
    return ".".join(jax.__version__.split(".")[:2])


def registered() -> set[str]:
    """The primitives that JAX can lower or differentiate. Other packages register theirs when they are imported, so
    this is for a process of its own."""
    for name in MODULES:
        import_module(name)
    mlir, ad = import_module("jax._src.interpreters.mlir"), import_module("jax._src.interpreters.ad")
    tables = [mlir._lowerings, *mlir._platform_specific_lowerings.values(), ad.primitive_jvps, ad.primitive_transposes]
    return {primitive.name for table in tables for primitive in table}


def enter(names: set[str]) -> None:
    """Write into the table that this JAX has primitives of these names; those that are new to it are called opened
    where there is a rule, and opaque where there is none."""
    from .table import Primitive, has_rule, primitives

    table = {p.name: p for p in primitives()}
    for name in names - table.keys():
        table[name] = Primitive(name, "opened" if has_rule(name) else "opaque", ())
    for name, p in table.items():
        others = {v for v in p.versions if v != version()}
        versions = others | ({version()} if name in names else set())
        table[name] = p._replace(versions=tuple(sorted(versions, key=lambda v: list(map(int, v.split("."))))))
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("primitive", "state", "jax"))
        lines.writerows([(p.name, p.state, " ".join(p.versions)) for _, p in sorted(table.items()) if p.versions])


if __name__ == "__main__":
    names = registered()
    if "--write" in sys.argv:
        enter(names)
    else:
        print("\n".join(sorted(names)))
