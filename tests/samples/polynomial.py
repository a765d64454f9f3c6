"""Samples of the family `polynomial`."""

from fractions import Fraction

from . import Sample, positive, real, sample

SAMPLES: list[Sample] = [
    sample("monomial", real(2, 3), real(2, 3), powers=(2, 3), ref=lambda a, b: a * a * b * b * b),
    sample("monomial", positive(2, 3), positive(3), positive(), powers=(-1, -2, 3), note="negative powers, broadcast",
           ref=lambda a, b, c: c**3 / (a * b**2)),
    sample("monomial", real(3), real(2, 1), powers=(0, 1), ref=lambda a, b: b + 0 * a, note="power 0"),
    sample("linear_combination", real(2, 3), real(2, 3), coefficients=(-2, Fraction(1, 3)), constant=0.5,
           ref=lambda a, b: b / 3 - 2 * a + 0.5),
    sample("linear_combination", real(3), real(2, 1), real(), coefficients=(1, 0.5, -1), note="broadcast",
           ref=lambda a, b, c: a + b / 2 - c),
]
