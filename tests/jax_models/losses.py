"""The losses of optax."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from .agreement import Model

RNG = np.random.default_rng(0)
LOGITS, OTHERS, THIRD = (RNG.standard_normal((3, 4)) for _ in range(3))
CHANCES = np.exp(OTHERS) / np.exp(OTHERS).sum(-1, keepdims=True)
LABELS, TRUTHS = np.asarray([0, 3, 1]), (THIRD > 0).astype(float)
SIGNS = 2 * TRUTHS - 1
WHERE = np.asarray([[True, True, False, True]] * 3)


def of(loss: Callable[..., Any], *rest: Any, moving: Any = (LOGITS,), **options: Any) -> Model:
    """A loss of arrays that are moved, and of others that are not."""
    return Model(lambda given: loss(*given, *rest, **options), moving)


def recognised(given: Any) -> Any:
    """What ctc_loss gives, for two sequences of three steps with padding."""
    paddings = jnp.asarray([[0.0, 0, 0], [0, 0, 1]])
    return optax.ctc_loss(given[0], paddings, jnp.asarray([[1, 2], [3, 0]]), jnp.asarray([[0.0, 0], [0, 1]]))


MODELS: dict[str, Callable[[], Model]] = {
    **{loss.__name__: functools.partial(of, loss, OTHERS) for loss in (
        optax.squared_error, optax.l2_loss, optax.log_cosh, optax.cosine_similarity, optax.cosine_distance,
        optax.huber_loss)},
    **{loss.__name__: functools.partial(of, loss, CHANCES) for loss in (
        optax.softmax_cross_entropy, optax.safe_softmax_cross_entropy, optax.losses.poly_loss_cross_entropy,
        optax.losses.ranking_softmax_loss, optax.losses.kl_divergence,
        optax.losses.generalized_kl_divergence)},
    "kl_divergence_with_log_targets": lambda: of(optax.losses.kl_divergence_with_log_targets, moving=(LOGITS, OTHERS)),
    **{loss.__name__: functools.partial(of, loss, TRUTHS) for loss in (
        optax.sigmoid_binary_cross_entropy, optax.sigmoid_focal_loss, optax.losses.sparsemax_loss,
        optax.losses.binary_dice_loss, optax.losses.dice_loss)},
    **{loss.__name__: functools.partial(of, loss, SIGNS) for loss in (
        optax.losses.hinge_loss, optax.losses.perceptron_loss)},
    **{loss.__name__: functools.partial(of, loss, LABELS) for loss in (
        optax.softmax_cross_entropy_with_integer_labels, optax.losses.multiclass_hinge_loss,
        optax.losses.multiclass_perceptron_loss, optax.losses.multiclass_sparsemax_loss)},
    "multiclass_generalized_dice_loss": lambda: of(optax.losses.multiclass_generalized_dice_loss,
                                                   np.eye(4)[[0, 3, 1]]),
    "softmax_cross_entropy with where": lambda: of(optax.softmax_cross_entropy, CHANCES, where=WHERE),
    "make_fenchel_young_loss": lambda: of(optax.losses.make_fenchel_young_loss(_log_sum), CHANCES),
    "ntxent": lambda: of(optax.losses.ntxent, np.asarray([0, 1, 0]), temperature=0.7),
    "smooth_labels": lambda: of(optax.smooth_labels, 0.1),
    "triplet_margin_loss": lambda: of(optax.losses.triplet_margin_loss, moving=(LOGITS, OTHERS, THIRD), margin=3.0),
    "ctc_loss": lambda: Model(recognised, (RNG.standard_normal((2, 3, 4)),)),
}  # fmt: skip


def _log_sum(x: Any) -> Any:
    return jnp.log(jnp.sum(jnp.exp(x)))
