"""Tries all functions of the table, and prints what stays opaque and why: `python -m tests.opening`."""

from __future__ import annotations

from .test_opening import ROWS, check, groups, opaque_in, opened


def main() -> None:
    """Print what is opened; raise where a function differs from JAX's."""
    count = covered = 0
    for family, rows in ROWS.items():
        for r in rows:
            report = opened(r)
            covered += report.opened.total()
            count += report.opened.total() + opaque_in(report)
            for kept in report.opaque:
                if kept.differentiable:
                    print(f"{family}: {r.name}: {' + '.join(kept.primitives)}: {kept.reason}")
    print(f"{sum(map(len, ROWS.values()))} functions; {covered} of {count} equations opened, {covered / count:.2%}")
    for family, rows, orders in groups(1):
        check(rows, orders)
        print(f"{family}: {', '.join([r.name for r in rows])}: as JAX to order {orders}")


if __name__ == "__main__":
    main()
