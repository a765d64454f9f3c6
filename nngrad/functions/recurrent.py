"""Recurrent layers: Elman networks, LSTM and GRU.

A layer is made of loops (`loops.py`), one for each direction, so its gradients of any order are loops too. The product
of all inputs with a weight, which does not depend on the state, is computed once before the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from ..graph import Array, Variable, composite
from ..graph.arguments import AtLeastOne, Share, one_of
from ..graph.leaf import common_floating
from . import activation, array, linear, loops, movement, stochastic

States = tuple[Variable, ...]
Cell = Callable[[Variable, Variable, States, Variable | None], States]
"""A step: from the inputs' part of the gates, that of the state, the previous states and a bias for the state's part to
the next states, the first of which is the output."""


class CellKind(NamedTuple):
    """A kind of recurrent cell."""

    name: str
    cell: Cell
    gates: int
    biases: int
    """The number of biases of each unit: one for each gate, and for some kinds one for the state's product."""
    states: tuple[str, ...]
    """The names of the states."""
    has_axis: bool = True
    """True if weights have a gate axis."""


def _gates(parts: Variable, size: int) -> tuple[Variable, ...]:
    """The gates in (batch, gates * size), each (batch, size)."""
    rows, total = parts.shape
    return movement.split(movement.reshape(parts, shape=(rows, total // size, size)), axis=1)


def _lstm_cell(of_inputs: Variable, fed_back: Variable, states: States, bias: Variable | None) -> States:
    h, c = states
    i, f, g, o = _gates(of_inputs + fed_back, h.shape[-1])
    c = activation.sigmoid(f) * c + activation.sigmoid(i) * activation.tanh(g)
    return activation.sigmoid(o) * activation.tanh(c), c


def _gru_cell(of_inputs: Variable, fed_back: Variable, states: States, bias: Variable | None) -> States:
    (h,) = states
    size = h.shape[-1]
    r, z, n = _gates(of_inputs, size)
    r_h, z_h, n_h = _gates(fed_back, size)
    z = activation.sigmoid(z + z_h)
    n = activation.tanh(n + activation.sigmoid(r + r_h) * (n_h if bias is None else n_h + bias))
    return (n + z * (h - n),)


def _elman_cell(nonlinearity: Callable[[Variable], Variable]) -> Cell:
    return lambda of_inputs, fed_back, states, bias: (nonlinearity(of_inputs + fed_back),)


LSTM = CellKind("lstm", _lstm_cell, 4, 4, ("h", "c"))
GRU = CellKind("gru", _gru_cell, 3, 4, ("h",))
ELMAN = {
    "tanh": CellKind("rnn", _elman_cell(activation.tanh), 1, 1, ("h",), has_axis=False),
    "relu": CellKind("rnn", _elman_cell(activation.relu), 1, 1, ("h",), has_axis=False),
}


def _checked(
    kind: CellKind, x: Variable, states: States, weight_l0: Variable, weight: Variable | None, bias: Variable | None,
    num_layers: int, bidirectional: bool,
) -> tuple[Variable, States, Variable, Variable | None, Variable | None]:  # fmt: skip
    """The arguments of the layers but for the last two, checked, in one dtype and with a gate axis."""
    name, directions = kind.name, 2 if bidirectional else 1
    if x.ndim != 3:
        raise ValueError(f"{name}: x must be of shape (steps, batch, inputs), got {x.shape}")
    _, batch, inputs = x.shape
    size = weight_l0.shape[-2] if weight_l0.ndim > 1 else 0
    gates = (kind.gates,) if kind.has_axis else ()
    biases = (kind.biases,) if kind.has_axis else ()
    if num_layers == 1 and weight is not None:
        raise ValueError(f"{name}: weight holds the layers after the first, so it must be None with num_layers=1")
    if num_layers > 1 and weight is None:
        raise ValueError(f"{name}: num_layers={num_layers} requires weight, for the layers after the first")
    expected = {
        "weight_l0": (weight_l0, (directions, *gates, size, inputs + size)),
        "weight": (weight, (num_layers - 1, directions, *gates, size, directions * size + size)),
        "bias": (bias, (num_layers, directions, *biases, size)),
    } | {n: (s, (num_layers, directions, batch, size)) for n, s in zip(kind.states, states, strict=True)}
    for argument, (value, shape) in expected.items():
        if value is not None and value.shape != shape:
            raise ValueError(
                f"{name}: {argument} must be of shape {shape} with x {x.shape}, weight_l0 {weight_l0.shape}, "
                f"num_layers={num_layers} and bidirectional={bidirectional}, got {value.shape}"
            )
    floating = common_floating([x, *states, weight_l0, weight, bias])
    if floating is None:
        raise TypeError(f"{name}: weights and states must have a floating dtype, got {weight_l0.spec}")

    cast = functools.partial(array.in_dtype, dtype=floating)

    def with_gates(value: Variable | None, axis: int) -> Variable | None:
        if value is None or kind.has_axis:
            return value if value is None else cast(value)
        return movement.reshape(cast(value), shape=(*value.shape[:axis], 1, *value.shape[axis:]))

    first = with_gates(weight_l0, 1)
    assert first is not None
    return cast(x), tuple([cast(s) for s in states]), first, with_gates(weight, 2), with_gates(bias, 2)


def _one_direction(
    kind: CellKind, x: Variable, states: States, weight: Variable, bias: Variable | None, reverse: bool
) -> tuple[States, Variable]:
    """The states after the last step, and the outputs (steps, batch, size), of one layer in one direction.

    `x` is (steps, batch, inputs), states are (batch, size), the weight (gates, size, inputs + size), the bias (biases,
    size).
    """
    inputs = x.shape[2]
    gates, size, _ = weight.shape
    of_inputs = movement.reshape(weight[..., :inputs], shape=(gates * size, inputs))
    of_state = movement.reshape(weight[..., inputs:], shape=(gates * size, size))
    from_inputs = linear.batch_matmul(x, of_inputs, transpose_b=True)
    if bias is not None:
        from_inputs = from_inputs + movement.reshape(bias[:gates], shape=(gates * size,))
    inside = None if bias is None or kind.biases == gates else bias[gates]

    def step(before: States, from_inputs: Variable) -> tuple[States, Variable]:
        after = kind.cell(from_inputs, linear.batch_matmul(before[0], of_state, transpose_b=True), before, inside)
        return after, after[0]

    last, outputs = loops.scan(step, states, from_inputs, reverse=reverse)
    return last, outputs


def _recurrent(
    kind: CellKind, x: Variable, states: States, weight_l0: Variable, weight: Variable | None, bias: Variable | None,
    num_layers: int, dropout: float, bidirectional: bool, training: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The outputs of the last layer, and each state after the last step."""
    y, states, weight_l0, weight, bias = _checked(
        kind, x, states, weight_l0, weight, bias, num_layers, bidirectional
    )
    after = []
    for layer in range(num_layers):
        if layer and training and dropout:
            y = stochastic.dropout(y, p=dropout)
        weights = weight_l0 if weight is None or not layer else weight[layer - 1]
        outputs = []
        for direction in range(2 if bidirectional else 1):
            first = tuple([s[layer, direction] for s in states])
            b = None if bias is None else bias[layer, direction]
            last, output = _one_direction(kind, y, first, weights[direction], b, reverse=direction == 1)
            after.append(last)
            outputs.append(output)
        y = outputs[0] if len(outputs) == 1 else movement.concatenate(*outputs, axis=2)
    finals = [movement.stack(*state, axis=0) for state in zip(*after, strict=True)]
    return y, *[movement.reshape(s, shape=states[0].shape) for s in finals]


@composite
def rnn(
    x: Array, h: Array, weight_l0: Array, weight: Array | None = None, bias: Array | None = None, /,
    num_layers: AtLeastOne = 1, nonlinearity: Annotated[str, one_of(*ELMAN)] = "tanh", dropout: Share = 0.0,
    bidirectional: bool = False, training: bool = True,
) -> tuple[Variable, Variable]:
    """Elman RNN layers: `h' = tanh(W_x x + W_h h + b)` at each step.

    Shapes are written with T steps, batches of B, I inputs, H units, L layers and D directions.

    Args:
        x: (T, B, I).
        h: The first states, (L, D, B, H).
        weight_l0: (W_x, W_h) of the first layer, joined along their last axis: (D, H, I + H).
        weight: Those of the other layers, (L - 1, D, H, D * H + H); None if there is only one layer.
        bias: b, (L, D, H); None for no bias.
        num_layers: L. Each layer after the first takes the outputs of the one before.
        nonlinearity: "tanh" or "relu".
        dropout: The probability of dropping each output between layers.
        bidirectional: Whether each layer has a second direction, from the last step to the first (D is 2), whose
            outputs are concatenated with those of the first.
        training: Whether dropout is applied.

    Returns:
        The outputs of the last layer, (T, B, D * H), and the last states, (L, D, B, H).

    Raises:
        TypeError: No argument is floating.
    """
    y, h_n = _recurrent(
        ELMAN[nonlinearity], x, (h,), weight_l0, weight, bias, num_layers, dropout, bidirectional, training
    )
    return y, h_n


@composite
def lstm(
    x: Array, h: Array, c: Array, weight_l0: Array, weight: Array | None = None, bias: Array | None = None, /,
    num_layers: AtLeastOne = 1, dropout: Share = 0.0, bidirectional: bool = False, training: bool = True,
) -> tuple[Variable, Variable, Variable]:
    """LSTM layers: long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    With i, f, g, o = W_x x + W_h h + b at each step:

        c' = sigmoid(f) c + sigmoid(i) tanh(g)
        h' = sigmoid(o) tanh(c')

    Args:
        x: (T, B, I): T steps, batches of B, I inputs.
        h: The first states, (L, D, B, H): L layers, D directions, H units.
        c: The first cells, of the same shape.
        weight_l0: (W_x, W_h) of the first layer, joined along their last axis: (D, 4, H, I + H).
        weight: Those of the other layers, (L - 1, D, 4, H, D * H + H); None if there is only one layer.
        bias: b, (L, D, 4, H); None for no bias.
        ...: As in `rnn`.

    Returns:
        The outputs of the last layer, (T, B, D * H), and the last states and cells, each (L, D, B, H).

    Raises:
        TypeError: No argument is floating.
    """
    y, h_n, c_n = _recurrent(LSTM, x, (h, c), weight_l0, weight, bias, num_layers, dropout, bidirectional, training)
    return y, h_n, c_n


@composite
def gru(
    x: Array, h: Array, weight_l0: Array, weight: Array | None = None, bias: Array | None = None, /,
    num_layers: AtLeastOne = 1, dropout: Share = 0.0, bidirectional: bool = False, training: bool = True,
) -> tuple[Variable, Variable]:
    """GRU layers: gated recurrent units (Cho et al., 2014), with the reset gate after the product.

    With r, z, n of W_x x and r', z', n' of W_h h at each step:

        r = sigmoid(r + r' + b_r)    z = sigmoid(z + z' + b_z)
        h' = (1 - z) tanh(n + b_n + r (n' + b_h)) + z h

    Args:
        weight_l0: (W_x, W_h) of the first layer, joined along their last axis: (D, 3, H, I + H).
        weight: Those of the other layers, (L - 1, D, 3, H, D * H + H); None if there is only one layer.
        bias: b_r, b_z, b_n and b_h, (L, D, 4, H); None for no bias.
        ...: As in `lstm`.

    Returns:
        The outputs of the last layer, (T, B, D * H), and the last states, (L, D, B, H).

    Raises:
        TypeError: No argument is floating.
    """
    y, h_n = _recurrent(GRU, x, (h,), weight_l0, weight, bias, num_layers, dropout, bidirectional, training)
    return y, h_n
