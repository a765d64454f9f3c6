"""Samples of recurrent layers. References take one step after another, in Python."""

import jax
import jax.numpy as jnp

from . import real, sample


def elman(activation):
    def cell(x, states, w, b):
        return (activation(jnp.concatenate([x, states[0]], 1) @ w.T + b),)
    return cell


def lstm(x, states, w, b):
    h, c = states
    i, f, g, o = (jnp.concatenate([x, h], 1) @ w[k].T + b[k] for k in range(4))
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def gru(x, states, w, b):
    (h,) = states
    r, z = (jax.nn.sigmoid(jnp.concatenate([x, h], 1) @ w[k].T + b[k]) for k in range(2))
    own = x.shape[1]
    n = jnp.tanh(x @ w[2, :, :own].T + b[2] + r * (h @ w[2, :, own:].T + b[3]))
    return ((1 - z) * n + z * h,)


def layers(cell, states, biases):
    """Layers of a cell, from their inputs in the order of F: x, states, weight_l0, weight and bias, if they are given.

    Args:
        cell: One step.
        states: How many states there are.
        biases: The shape of a bias without its last axis.
    """
    def run(x, *given):
        first, weight_l0, *rest = given[:states], *given[states:]
        count, directions, _, size = first[0].shape
        weight = rest.pop(0) if count > 1 else None
        bias = rest[0] if rest else jnp.zeros((count, directions, *biases, size))
        finals = [[[None] * directions for _ in range(count)] for _ in range(states)]
        for layer in range(count):
            rows = [[None] * directions for _ in x]
            for d in range(directions):
                w = (weight[layer - 1] if layer else weight_l0)[d]
                at = [s[layer, d] for s in first]
                for t in range(len(x)) if d == 0 else reversed(range(len(x))):
                    at = cell(x[t], at, w, bias[layer, d])
                    rows[t][d] = at[0]
                for k, s in enumerate(at):
                    finals[k][layer][d] = s
            x = jnp.stack([jnp.concatenate(row, 1) for row in rows])
        return x, *[jnp.stack([jnp.stack(row) for row in final]) for final in finals]
    return run


SAMPLES = [
    sample("rnn", real(2, 2, 1), real(1, 1, 2, 2), real(1, 2, 3), ref=layers(elman(jnp.tanh), 1, ())),
    sample("rnn", real(2, 1, 2), real(2, 2, 1, 2), real(2, 2, 4), real(1, 2, 2, 6), real(2, 2, 2), num_layers=2,
           nonlinearity="relu", dropout=0.5, bidirectional=True, training=False,
           numeric=False, ref=layers(elman(jax.nn.relu), 1, ()), orders=2),
    sample("lstm", real(2, 1, 2), real(1, 1, 1, 2), real(1, 1, 1, 2), real(1, 4, 2, 4), ref=layers(lstm, 2, (4,))),
    sample("lstm", real(2, 1, 1), real(2, 2, 1, 1), real(2, 2, 1, 1), real(2, 4, 1, 2), real(1, 2, 4, 1, 3),
           real(2, 2, 4, 1), num_layers=2, dropout=0.5, bidirectional=True, training=False,
           ref=layers(lstm, 2, (4,)), orders=2),
    sample("gru", real(2, 1, 2), real(1, 1, 1, 2), real(1, 3, 2, 4), ref=layers(gru, 1, (4,))),
    sample("gru", real(2, 1, 1), real(2, 2, 1, 1), real(2, 3, 1, 2), real(1, 2, 3, 1, 3), real(2, 2, 4, 1),
           num_layers=2, dropout=0.5, bidirectional=True, training=False,
           ref=layers(gru, 1, (4,)), orders=2),
]
