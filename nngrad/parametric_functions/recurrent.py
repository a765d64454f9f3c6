"""Recurrent layers with parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functions as F
from ..extend import Array, Variable, as_variable, as_variables, explained
from ..initializer import Rng, UniformInitializer, calc_uniform_lim_glorot
from ..parameter import Initializer
from .affine import affine
from .layer_arguments import as_whole_number, size
from .layer_parameters import ZEROS, Init, own_parameters, parameter


def _joined(inmaps: int, outmaps: int, rng: Rng | None) -> Initializer:
    """Glorot's initializer for a weight of the inputs and one of the state, each with its own limits, joined along
    their last axis."""

    def make(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        parts = [
            UniformInitializer(calc_uniform_lim_glorot(n, outmaps), rng)((*shape[:-1], n)) for n in (inmaps, outmaps)
        ]
        return np.concatenate(parts, axis=-1)

    return make


def _parameters(
    x: Variable, h: Variable, gates: tuple[int, ...], biases: tuple[int, ...], w0_init: Init, w_init: Init,
    b_init: Init, num_layers: int, bidirectional: bool, rng: Rng | None, with_bias: bool, fixed: bool,
) -> tuple[Variable, Variable | None, Variable | None]:  # fmt: skip
    """`weight_l0`, `weight` if there are several layers, and `bias` if there is one. `gates` and `biases` are the sizes
    of the gate axis in weights and in biases, or ()."""
    directions = 2 if bidirectional else 1
    if x.ndim != 3:
        raise ValueError(f"x must be of shape (steps, batch, inputs), got {x.shape}")
    if h.ndim != 4 or h.shape[1] != directions or h.shape[0] < 1:
        raise ValueError(
            f"h must be of shape (layers, directions, batch, units), with {directions} directions for "
            f"bidirectional={bidirectional}, got {h.shape}"
        )
    layers, _, _, units = h.shape
    if as_whole_number(num_layers, "num_layers") not in (1, layers):
        raise ValueError(f"num_layers must be {layers}, the layers of h {h.shape}, got {num_layers}")
    inputs = x.shape[2]
    w0 = parameter(
        "weight_l0", (directions, *gates, units, inputs + units), w0_init, _joined(inputs, units, rng), fixed
    )
    w = b = None
    if layers > 1:
        between = directions * units
        shape = (layers - 1, directions, *gates, units, between + units)
        w = parameter("weight", shape, w_init, _joined(between, units, rng), fixed)
    if with_bias:
        b = parameter("bias", (layers, directions, *biases, units), b_init, ZEROS, fixed)
    return w0, w, b


@own_parameters("rnn")
def rnn(
    x: Array, h: Array, w0_init: Init = None, w_init: Init = None, b_init: Init = None, num_layers: int = 1,
    nonlinearity: str = "tanh", dropout: float = 0.0, bidirectional: bool = False, training: bool = True,
    rng: Rng | None = None, with_bias: bool = True, fix_parameters: bool = False, name: str | None = None,
) -> tuple[Variable, Variable]:
    """Elman RNN layers, as in `F.rnn`.

    Parameters, for L layers, D directions, I inputs and H units: weight_l0 (D, H, I + H) and, if there are several
    layers, weight (L - 1, D, H, D * H + H), both within Glorot's limits, separately for inputs and states; bias (L, D,
    H), zeros.

    Args:
        x: (steps, batch, I).
        h: The first states, (L, D, batch, H), which determine the numbers of layers and units.
        w0_init: Initial weight_l0.
        w_init: Initial weight.
        b_init: Initial bias.
        num_layers: L; 1 takes it from `h`.
        rng: Generator for the default initial values.
        with_bias: Whether there is a bias.
        fix_parameters: Whether the parameters are constants.
        ...: As in `F.rnn`.

    Returns:
        The outputs of the last layer, (steps, batch, D * H), and the last states, of the shape of `h`.
    """
    _, h = as_variables((x, h), ("x", "h"), "rnn")
    w0, w, b = _parameters(x, h, (), (), w0_init, w_init, b_init, num_layers, bidirectional, rng, with_bias,
                           fix_parameters)  # fmt: skip
    return F.rnn(
        x, h, w0, w, b, num_layers=h.shape[0], nonlinearity=nonlinearity, dropout=dropout, bidirectional=bidirectional,
        training=training,
    )


@own_parameters("lstm")
def lstm(
    x: Array, h: Array, c: Array, w0_init: Init = None, w_init: Init = None, b_init: Init = None, num_layers: int = 1,
    dropout: float = 0.0, bidirectional: bool = False, training: bool = True, rng: Rng | None = None,
    with_bias: bool = True, fix_parameters: bool = False, name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """LSTM layers, as in `F.lstm`.

    Parameters, for L layers, D directions, I inputs and H units: weight_l0 (D, 4, H, I + H) and, if there are several
    layers, weight (L - 1, D, 4, H, D * H + H), both within Glorot's limits, separately for inputs and states; bias (L,
    D, 4, H), zeros. The gates are in the order input, forget, cell, output.

    Args:
        c: The first cells, of the same shape.
        ...: As in `rnn`.

    Returns:
        The outputs of the last layer, (steps, batch, D * H), and the last states and cells, of the shape of `h`.
    """
    _, h, c = as_variables((x, h, c), ("x", "h", "c"), "lstm")
    w0, w, b = _parameters(x, h, (4,), (4,), w0_init, w_init, b_init, num_layers, bidirectional, rng, with_bias,
                           fix_parameters)  # fmt: skip
    return F.lstm(
        x, h, c, w0, w, b, num_layers=h.shape[0], dropout=dropout, bidirectional=bidirectional, training=training
    )


@own_parameters("gru")
def gru(
    x: Array, h: Array, w0_init: Init = None, w_init: Init = None, b_init: Init = None, num_layers: int = 1,
    dropout: float = 0.0, bidirectional: bool = False, training: bool = True, rng: Rng | None = None,
    with_bias: bool = True, fix_parameters: bool = False, name: str | None = None,
) -> tuple[Variable, Variable]:
    """GRU layers, as in `F.gru`.

    Parameters, for L layers, D directions, I inputs and H units: weight_l0 (D, 3, H, I + H) and, if there are several
    layers, weight (L - 1, D, 3, H, D * H + H), both within Glorot's limits, separately for inputs and states; bias (L,
    D, 4, H), zeros. The gates are in the order reset, update, new; the last bias is that of the new gate's product with
    the state.

    Args:
        ...: As in `rnn`.

    Returns:
        The outputs of the last layer, (steps, batch, D * H), and the last states, of the shape of `h`.
    """
    _, h = as_variables((x, h), ("x", "h"), "gru")
    w0, w, b = _parameters(x, h, (3,), (4,), w0_init, w_init, b_init, num_layers, bidirectional, rng, with_bias,
                           fix_parameters)  # fmt: skip
    return F.gru(x, h, w0, w, b, num_layers=h.shape[0], dropout=dropout, bidirectional=bidirectional, training=training)


@own_parameters("lstm")
def lstm_cell(
    x: Array, h: Array, c: Array, state_size: int, w_init: Init = None, b_init: Init = None,
    fix_parameters: bool = False, name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of an LSTM.

    Parameters: affine/W (inputs + state_size, 4, state_size), uniform within Glorot's limits; affine/b
    (4, state_size), zeros. The gates are in the order input, output, forget, cell, unlike those of `lstm`.

    Args:
        x: (batch, inputs).
        h: The state, (batch, state_size).
        c: The cell, of the same shape.
        state_size: Number of units.
        fix_parameters: Whether the parameters are constants.

    Returns:
        The next state and the next cell.

    Raises:
        ValueError: A shape does not fit, or an existing parameter has another shape.
    """
    _, h, c = as_variables((x, h, c), ("x", "h", "c"), "lstm_cell")
    expected = (*x.shape[:1], size(state_size, "state_size"))
    for argument, value in (("h", h), ("c", c)):
        if x.ndim != 2 or value.shape != expected:
            raise ValueError(
                f"lstm_cell: x must be of shape (batch, inputs) and {argument} of shape (batch, {state_size}), got "
                f"{x.shape} and {value.shape}"
            )
    gates = affine(
        F.concatenate(x, h, axis=1), (4, state_size), w_init=w_init, b_init=b_init, fix_parameters=fix_parameters
    )
    i, o, f, g = F.split(gates, axis=1)
    c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(c), c


class LSTMCell:
    """`lstm_cell` with its state: each call takes one step from the state after the previous call.

    Attributes:
        h: The state, (batch_size, state_size).
        c: The cell.

    Args:
        batch_size: Number of rows.
        state_size: Number of units.
        h: The first state; zeros by default.
        c: The first cell; zeros by default.
        name: Scope around that of the parameters.
    """

    @explained
    def __init__(
        self, batch_size: int, state_size: int, h: Array | None = None, c: Array | None = None, name: str | None = None
    ) -> None:
        self.batch_size = size(batch_size, "LSTMCell: batch_size")
        self.state_size = size(state_size, "LSTMCell: state_size")
        self.name = name
        self.reset_state()
        for argument, value in (("h", h), ("c", c)):
            if value is not None:
                as_variable(value, argument, "LSTMCell")  # raises unless it is one; arrays take the dtype of x
                setattr(self, argument, value)

    def reset_state(self) -> None:
        """Set the state and the cell to zeros."""
        self.h: Array
        self.c: Array
        self.h, self.c = (Variable((self.batch_size, self.state_size)) for _ in range(2))

    def __call__(self, x: Array, w_init: Init = None, b_init: Init = None, fix_parameters: bool = False) -> Variable:
        """Take one more step, and return the new state.

        Args:
            x: (batch_size, inputs).
            w_init: Initial W, if the parameters do not exist yet.
            b_init: Initial b.
            fix_parameters: Whether the parameters are constants.
        """
        h, self.c = lstm_cell(
            x, self.h, self.c, self.state_size, w_init=w_init, b_init=b_init, fix_parameters=fix_parameters,
            name=self.name,
        )
        self.h = h
        return h
