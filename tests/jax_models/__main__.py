"""All models of all families against JAX, to order 3, and how many of their equations were opened.

    python -m tests.jax_models

The suite opens them all, and compares some.
"""

from __future__ import annotations

import time

import jax

import nngrad.jax as nj

from .agreement import check, number
from .families import groups, made, share_opened
from .networks import deep


def main() -> None:
    """Compare, and print a line for each group and for what stays opaque in it."""
    everything = []
    for family, names in groups():
        reports = check(made(family, names))
        everything += list(reports.values())
        opened = sum([r.opened.total() for r in reports.values()])
        print(f"{family}: {len(names)} models agree, {opened} equations opened ({share_opened(reports.values()):.1%})")
        for name, report in reports.items():
            for kept, n in report.opaque.items():
                print(f"  {name}: {' + '.join(kept.primitives)} x {n}: {kept.reason}")
    opened, opaque = (sum([getattr(r, kind).total() for r in everything]) for kind in ("opened", "opaque"))
    print(f"{len(everything)} models: {opened} of {opened + opaque} equations opened, {opened / (opened + opaque):.2%}")
    cost_of_opening()


def cost_of_opening() -> None:
    """The time that opening takes of a transformer of 12 layers, beside what JAX takes to trace it."""
    with jax.enable_x64(True):
        model = deep()
        run = number(model)
        began = time.perf_counter()
        jaxpr = jax.make_jaxpr(run)(model.tree)
        traced = time.perf_counter()
        gradient = nj.grad(run)
        jax.eval_shape(gradient, model.tree)
        opened = time.perf_counter()
        jax.jit(jax.grad(run)).lower(model.tree)
        lowered = time.perf_counter()
        jax.jit(gradient).lower(model.tree)
        ended = time.perf_counter()
    count = gradient.report().opened.total()
    print(f"12 layers, {len(jaxpr.eqns)} equations and calls, traced by JAX in {traced - began:.2f} s")
    each = 1e3 * (opened - traced) / count
    print(f"traced, opened and differentiated in {opened - traced:.2f} s: {each:.2f} ms for each of {count} equations")
    print(f"lowered by jax.grad in {lowered - opened:.2f} s, and by nj.grad after that in {ended - lowered:.2f} s")


if __name__ == "__main__":
    main()
