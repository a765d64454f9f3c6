"""Squares of what is known by estimates alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import nngrad.functions as F

from ..graph import Variable
from .drawn import checked_key
from .parts import positive_int


def unbiased_square(estimate: Callable[[Variable], Variable], draws: int = 2, seed: int | Variable = -1) -> Variable:
    """An estimate, without a bias, of the square of what is estimated without one: of a squared residual, say.

        result = 1 / (draws (draws - 1)) sum_{i != j} r_i r_j,   r_i = estimate(key_i)

    The square of one estimate is too large by its variance; the product of two that are independent is not, and nor are
    its gradients. It may be negative.

    Args:
        estimate: A function of a key, a Variable uint32[2], which draws by it:
            `lambda key: nn.laplacian(u, x, directions=4, seed=key) + u`. Operators that are given one key draw alike.
        draws: From how many independent estimates, at least 2; the variance goes down with their number.
        seed: As for `nn.laplacian`: what the keys follow from.

    Returns:
        In the shape of what `estimate` returns.

    Raises:
        TypeError: `estimate` is no function, or does not return a floating Variable; `draws` is no int; `seed` is
            neither an int nor a key.
        ValueError: `draws` is less than 2.
    """
    name = "unbiased_square"
    if not callable(estimate):
        raise TypeError(f"{name}: estimate: expected a function of a key, got {estimate!r}")
    if positive_int(draws, f"{name}: draws") < 2:
        raise ValueError(f"{name}: draws must be at least 2: the square of a single estimate is biased")
    key = checked_key(name, seed)
    found = [estimate(F.subkey(key, index=i)) for i in range(draws)]
    for each in found:
        if not isinstance(each, Variable) or not each.spec.differentiable:
            shown = each.spec if isinstance(each, Variable) else repr(each)
            raise TypeError(f"{name}: estimate: must return a Variable of a floating dtype, got {shown}")
    if draws == 2:
        product: Variable = found[0] * found[1]
        return product
    before, total = found[0], found[0] * found[1]
    for last, each in pairwise(found[1:]):  # each pair once, in as many products as estimates
        before = before + last
        total = total + before * each
    mean: Variable = F.mul_scalar(total, val=2 / (draws * (draws - 1)))
    return mean
