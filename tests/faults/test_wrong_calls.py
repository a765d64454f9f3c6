"""Any function of F, PF and nn with a wrong argument: what refuses it names it, wherever that is."""

from __future__ import annotations

import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF

V = nn.Variable.from_numpy_array


def of(*shape: int) -> nn.Variable:
    return V(np.linspace(0.1, 0.9, int(np.prod(shape))).reshape(shape))


X, CUBE, IMAGE, STEPS, STATE = of(2, 3), of(2, 3, 4), of(2, 4, 5, 5), of(2, 1, 3), of(1, 1, 1, 2)
W = V(np.ones(3), need_grad=True)
Y = F.tanh(X) * 2
LOSS, EACH = F.sum(Y), F.sum(Y, axis=1)
AFFINE = {"inp": X, "n_outmaps": 2}
CONV = {"inp": IMAGE, "outmaps": 4, "kernel": (3, 3)}
HEADS = {"query": of(2, 1, 4), "key": of(2, 1, 4), "value": of(2, 1, 4), "num_heads": 2}
LAYER = {"embed_dim": 4, "num_heads": 2, "dim_feedforward": 3, "dropout": 0.0}

SOUND: dict[Any, dict[str, Any]] = {
    F.argmax_crf1d: {"cost": np.eye(2), "xs": [np.ones((1, 2))] * 2},
    F.associative_scan: {"fn": lambda a, b: a + b, "elems": X},
    F.average: {"x": X},
    F.crf1d: {"cost": np.eye(2), "xs": [np.ones((1, 2))] * 2, "ys": [np.zeros(1, np.int32)] * 2},
    F.fori_loop: {"lower": 0, "upper": 2, "body": lambda i, c: c * 2, "init": X},
    F.jax_function: {"fun": jnp.sin},
    F.map: {"function": lambda a: a * 2, "xs": X},
    F.multi_head_attention: HEADS | {n: of(4, 4) for n in ("q_weight", "k_weight", "v_weight", "out_weight")},
    F.negative_sampling: {"x": X, "t": np.array([0, 1]), "W": of(4, 3), "sample_size": 2,
                          "sampler": lambda shape: np.zeros(shape, np.int32)},
    F.pad_sequence: {"xs": [np.ones(2), np.ones(3)]},
    F.polygamma: {"n": 2, "x": X},
    F.rrelu: {"x": X},
    F.scan: {"body": lambda c, a: (c + a, c), "init": V(np.ones(3)), "xs": X},
    F.simplified_dropconnect: {"x": X, "W": of(4, 3)},
    F.split_axis: {"x": X, "indices_or_sections": 2, "axis": 0},
    F.tensor_normalization: {"x": X, "axes": 0},
    F.transpose_sequence: {"xs": [np.ones(3), np.ones(2)]},
    F.while_loop: {"cond_fun": lambda c: F.sum(c) < 10, "body_fun": lambda c: c * 2, "init": X, "bound": 5},
    F.zeta: {"x": 2.0, "q": X},
    **{getattr(PF, f"{kind}affine"): AFFINE for kind in (
        "", "fixed_point_quantized_", "min_max_quantized_", "pow2_quantized_", "pruned_")},
    PF.svd_affine: AFFINE | {"r": 1},
    **{getattr(PF, f"{kind}convolution"): CONV for kind in (
        "", "de", "fixed_point_quantized_", "min_max_quantized_", "pow2_quantized_", "pruned_")},
    PF.svd_convolution: CONV | {"r": 2},
    PF.deformable_convolution: CONV | {"offset": of(2, 18, 3, 3)},
    PF.depthwise_convolution: {"inp": IMAGE, "kernel": (3, 3)},
    PF.depthwise_deconvolution: {"inp": IMAGE, "kernel": (3, 3)},
    PF.batch_normalization: {"inp": CUBE}, PF.fused_batch_normalization: {"inp": CUBE},
    PF.sync_batch_normalization: {"inp": CUBE, "comm": None}, PF.instance_normalization: {"inp": CUBE},
    PF.layer_normalization: {"inp": CUBE}, PF.mean_subtraction: {"inp": CUBE}, PF.prelu: {"inp": X},
    PF.group_normalization: {"inp": CUBE, "num_groups": 3},
    PF.embed: {"inp": np.array([0, 1]), "n_inputs": 2, "n_features": 3},
    PF.gru: {"x": STEPS, "h": STATE}, PF.rnn: {"x": STEPS, "h": STATE}, PF.lstm: {"x": STEPS, "h": STATE, "c": STATE},
    PF.lstm_cell: {"x": X, "h": of(2, 4), "c": of(2, 4), "state_size": 4},
    PF.LSTMCell: {"batch_size": 2, "state_size": 3},
    PF.min_max_quantize: {"x": X}, PF.spectral_norm: {"w": X}, PF.weight_normalization: {"w": X},
    PF.multi_head_attention: HEADS,
    PF.transformer_encode: {"src": of(2, 1, 4), **LAYER},
    PF.transformer_decode: {"tgt": of(2, 1, 4), "memory": of(2, 1, 4), **LAYER},
    nn.grad: {"outputs": [LOSS], "inputs": [X]},
    nn.jvp: {"outputs": Y, "inputs": X, "tangents": np.ones((2, 3))},
    nn.vjp: {"outputs": Y, "inputs": X, "cotangents": np.ones((2, 3))},
    nn.hvp: {"outputs": LOSS, "inputs": X, "vectors": np.ones((2, 3))},
    nn.bilaplacian: {"y": Y, "x": X}, nn.jacobian: {"y": Y, "x": X}, nn.laplacian: {"y": Y, "x": X},
    nn.divergence: {"y": Y, "x": X}, nn.hessian: {"y": EACH, "x": X}, nn.hessian_diagonal: {"y": EACH, "x": X},
    nn.derivatives: {"y": Y, "wanted": [X]}, nn.nth_derivative: {"y": Y, "x": X, "n": 2},
    nn.compile: {"outputs": Y, "inputs": X}, nn.to_jax: {"outputs": Y, "inputs": X}, nn.from_jax: {"fun": jnp.sin},
    nn.vmap: {"fun": lambda a: a * 2}, nn.checkpoint: {"fun": lambda a: a * 2},
    nn.count: {"outputs": Y}, nn.show: {"outputs": Y}, nn.find_nan: {"outputs": Y}, nn.draw: {"outputs": Y},
    nn.fixed_point: {"fun": F.cos, "x0": np.ones(2)}, nn.root: {"fun": lambda a: a * a - 2, "x0": np.ones(2)},
    nn.minimize: {"fun": lambda a: F.sum(a * a), "x0": np.ones(2)},
    nn.linear_solve: {"matrix": V(np.eye(2)), "b": np.ones(2)},
    nn.odeint: {"fun": lambda y, t: -y, "y0": np.ones(2), "t": np.array([0.0, 1.0]), "method": "rk4", "steps": 2},
    nn.get_parameter_or_create: {"name": "w", "shape": (2,)}, nn.shard: {"what": W, "spec": None},
    nn.save_parameters: {"path": "a.safetensors", "params": {"w": W}},
    nn.train_step: {"loss": F.sum(W * W), "parameters": {"w": W}, "optimizer": nn.solvers.Sgd()},
    nn.DynamicLossScale: {}, nn.MovingAverage: {"parameters": {"w": W}}, nn.Context: {},
    nn.LeastMemory: {}, nn.MemoryBudget: {"nbytes": 1e6},
}
"""Calls that are right, of which some are made wrong: all that F, PF and nn have and that has no effect elsewhere."""

WRONG = [
    10**20, -(10**20), 10**400, np.ones(3), np.ones((2, 2)), X, "text", b"x", None, [[1], [2, [3]]], [None], ["a"], [],
    {}, {"a": 1}, float("nan"), float("inf"), -1, 0.5, True, 1j, object(), [10**20], slice(None), {1}, [X, None],
]
GENERAL = r"^\w+: \w+[:(]|parameter '|positional argument|carry|index|did not converge|interpreted as an integer"
"""What names the part of a function that refuses, or what the user would know it by."""


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path) -> Iterator[None]:
    here = os.getcwd()
    os.chdir(tmp_path)
    yield
    os.chdir(here)
    nn.clear_parameters()


def refused(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """What a call is refused with; nothing where it is not. No other error than these kinds may come."""
    nn.clear_parameters()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**arguments)
    except (TypeError, ValueError, OSError) as error:
        assert str(error)
        return str(error)
    return ""


def is_foreign(function: Any, message: str) -> bool:
    """Whether the user's own function may have said it, which got what is wrong."""
    takes_one = "Callable" in str(inspect.signature(function))
    return takes_one and re.match(r"bad operand|unsupported|[+*]: |sum: ", message) is not None


@pytest.mark.parametrize("function", SOUND, ids=lambda f: f"{f.__module__.split('.')[1:2]}{f.__name__}")
def test_wrong_arguments_are_named(function: Any) -> None:
    parameters = list(inspect.signature(function).parameters)
    assert not refused(function, SOUND[function])
    rng = np.random.default_rng(sum(map(ord, function.__name__)))
    for _ in range(20):
        name, value = parameters[rng.integers(len(parameters))], WRONG[rng.integers(len(WRONG))]
        message = refused(function, SOUND[function] | {name: value})
        if message and not is_foreign(function, message):
            named = any(re.search(rf"\b{p}\b", message) for p in parameters) or re.search(GENERAL, message)
            assert named, f"{name}={value!r}: {message}"


def test_errors_of_the_users_stay_theirs() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("the user's own")

    for call in (lambda: nn.root(fails, np.ones(2)), lambda: F.map(fails, X), lambda: PF.affine(X, 3, apply_w=fails)):
        with pytest.raises(ValueError, match=r"^the user's own"):
            call()
