"""The training steps whose scaling is looked at, for any size of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.training.step import TrainStep

from ..critic import conv_parameters, nngrad_conv, nngrad_loss
from ..physics import EQUATIONS
from ..physics import nngrad_loss as equation_loss
from ..tanh_mlp import tanh_parameters

Parameters = dict[str, nn.Variable]
Built = tuple[nn.Variable, Parameters, list[nn.Variable]]
"""A loss, its parameters, and its inputs, which are batches."""


def named(arrays: list[np.ndarray]) -> Parameters:
    """Parameters with these values."""
    return {str(i): nn.Variable.from_numpy_array(a, need_grad=True) for i, a in enumerate(arrays)}


def critic(batch: int) -> Built:
    """A convolutional WGAN-GP critic on images of 3x32x32, with dropout before its output and drawn mixing weights."""
    parameters = named(conv_parameters(np.random.default_rng(0), False))
    network = nngrad_conv(False)
    real, fake = nn.Variable((batch, 3, 32, 32)), nn.Variable((batch, 3, 32, 32))
    mix = F.rand(shape=(batch, 1, 1, 1))
    loss = nngrad_loss(lambda p, x: network(p, F.dropout(x, 0.1)), list(parameters.values()), real, fake, mix)
    return loss, parameters, [real, fake]


def equation(batch: int) -> Built:
    """The residual of Korteweg and de Vries' equation, with a third derivative, of a tanh network 2-64-64-64-1."""
    parameters = named(tanh_parameters(np.random.default_rng(0), 2, 64, 64, 64, 1))
    x, t = nn.Variable((batch, 1)), nn.Variable((batch, 1))
    return equation_loss(EQUATIONS[1], list(parameters.values()), x, t), parameters, [x, t]


LENGTH, WORDS, WIDTH, HEADS = 32, 64, 64, 4


def transformer(batch: int) -> Built:
    """Two layers of an encoder of width 64 on 32 words, with dropout, and cross-entropy of the next word."""
    words, following = nn.Variable((batch, LENGTH), dtype=np.int32), nn.Variable((batch, LENGTH), dtype=np.int32)
    with nn.parameter_scope("transformer"):
        h = F.transpose(PF.embed(words, WORDS, WIDTH), (1, 0, 2))
        for layer in range(2):
            h = PF.transformer_encode(h, WIDTH, HEADS, 4 * WIDTH, name=f"layer{layer}")
        scores = PF.affine(F.transpose(h, (1, 0, 2)), WORDS, base_axis=2, name="scores")
        loss = F.mean(F.softmax_cross_entropy(scores, F.reshape(following, (batch, LENGTH, 1))))
        return loss, nn.get_parameters(), [words, following]


class Model(NamedTuple):
    """A training step, and for how many examples it is looked at."""

    build: Callable[[int], Built]
    each: int
    """Examples for each device, in weak scaling."""
    whole: int
    """Examples of all devices together, in strong scaling."""


MODELS = {
    "critic": Model(critic, each=16, whole=2048),
    "transformer": Model(transformer, each=16, whole=2048),
    "PINN": Model(equation, each=256, whole=65536),
}


def step_of(built: Built) -> TrainStep:
    """Its training step with Adam."""
    loss, parameters, inputs = built
    return nn.train_step(loss, parameters, S.Adam(1e-3), inputs=inputs)
