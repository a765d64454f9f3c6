"""MixFlow-MG: gradients through inner steps, by mixed-mode differentiation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from ..reproducing.experiment import Experiment, Make, Point, Step, Table, in_jax

Parameters = dict[str, Any]
RATE = 0.1
OURS, REVERSE = "nngrad", "JAX, reverse over reverse"
CHECKPOINTED, MIXED = "JAX, reverse over reverse, steps checkpointed", "JAX, MixFlow-MG"


def parameters_of(width: int, blocks: int) -> Parameters:
    """Weights of residual blocks, and of the scores."""
    rng = np.random.default_rng(0)
    names = [f"{part}{i}" for i in range(blocks) for part in ("up", "down")]
    return {k: rng.normal(0, width**-0.5, (width, width)).astype("f") for k in [*names, "scores"]}


def loss_of(p: Parameters, data: Any) -> Any:
    """The mean cross entropy of residual blocks with normalised inputs, in JAX."""
    x, labels = data
    for i in range(len(p) // 2):
        x = x + jnp.tanh(normalised(x) @ p[f"up{i}"]) @ p[f"down{i}"]
    return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(normalised(x) @ p["scores"]), -1))


def normalised(x: Any) -> Any:
    """Each vector less its mean, over its standard deviation."""
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


# ---------------------------------------------------------------- the methods

Gradient = Callable[[Parameters, Any], Parameters]


def meta_gradient(gradient: Gradient, checkpointed: bool) -> Callable[..., Any]:
    """The gradient of the loss after the inner steps, by the first parameters and by the rates, in JAX."""

    def outer(first: Parameters, rates: Parameters, inner: Any, last: Any) -> Any:
        def step(p: Parameters, data: Any) -> tuple[Parameters, None]:
            g = gradient(p, data)
            return {k: p[k] - jnp.exp(rates[k]) * g[k] for k in p}, None

        return loss_of(jax.lax.scan(jax.checkpoint(step) if checkpointed else step, first, inner)[0], last)

    return jax.grad(outer, (0, 1))


@jax.custom_vjp
def mixed_gradient(p: Parameters, data: Any) -> Parameters:
    """The gradient of the loss, whose own reverse pass is a product with the Hessian, forward over reverse.

    The Hessian is symmetric, so the product with it from the left is the product from the right, which is the
    derivative of the gradient along the cotangents.
    """
    return jax.grad(loss_of)(p, data)


def _keep(p: Parameters, data: Any) -> tuple[Parameters, Any]:
    return mixed_gradient(p, data), (p, data)


def _product(kept: Any, cotangents: Parameters) -> tuple[Parameters, None]:
    p, data = kept
    return jax.jvp(lambda p: jax.grad(loss_of)(p, data), (p,), (cotangents,))[1], None


mixed_gradient.defvjp(_keep, _product)


def nngrad_meta_gradient(arrays: tuple[Any, ...]) -> Step:
    """The same in nngrad: `nn.grad` in the body of `F.scan`, and `nn.grad` of what comes out."""
    first, rates, inner, last = leaves = jax.tree.map(nn.Variable.from_numpy_array, arrays)
    loss = nn.from_jax(loss_of)

    def step(p: Parameters, data: nn.Variable) -> tuple[Parameters, None]:
        g = nn.grad(loss(p, data), [*p.values()])
        return {k: p[k] - F.exp(rates[k]) * d for k, d in zip(p, g, strict=True)}, None

    by, structure = jax.tree.flatten((first, rates))
    gradients = jax.tree.unflatten(structure, nn.grad(loss(F.scan(step, first, inner)[0], last), by))
    return in_jax(nn.to_jax(gradients, leaves), *arrays)


def makers(width: int, steps: int, blocks: int = 3, batch: int = 64) -> Mapping[str, Make]:
    """The methods at one size, on drawn data. The rates are equal at first."""
    rng = np.random.default_rng(1)
    first = parameters_of(width, blocks)
    rates = dict.fromkeys(first, np.log(np.float32(RATE)))

    def data(*shape: int) -> list[np.ndarray]:
        labels = np.eye(width, dtype="f")[rng.integers(0, width, shape)]
        return [rng.normal(size=(*shape, width)).astype("f"), labels]

    arrays = first, rates, data(steps, batch), data(batch)

    def plain(p: Parameters, data: Any) -> Parameters:
        return jax.grad(loss_of)(p, data)

    return {
        OURS: lambda: nngrad_meta_gradient(arrays),
        REVERSE: lambda: in_jax(meta_gradient(plain, False), *arrays),
        CHECKPOINTED: lambda: in_jax(meta_gradient(plain, True), *arrays),
        MIXED: lambda: in_jax(meta_gradient(mixed_gradient, False), *arrays),
    }


def tables(smoke: bool) -> Iterable[Table]:
    """Over the number of inner steps, and over the width."""
    if smoke:
        yield Table("width 8", "inner steps", [Point(2, makers(8, 2, 1, 2), 1e-3)])
        return
    yield Table("width 64", "inner steps", [Point(n, makers(64, n), 1e-3) for n in (4, 16, 64)])
    yield Table("8 inner steps", "width", [Point(w, makers(w, 8), 1e-3) for w in (64, 128, 256)])


EXPERIMENT = Experiment(
    title="MixFlow-MG: gradients through inner steps",
    paper="I. Kemaev, D. A. Calian, L. M. Zintgraf, G. Farquhar, H. van Hasselt: Scalable meta-learning via mixed-mode "
    "differentiation, 2025",
    url="https://arxiv.org/abs/2505.00793",
    ran="""
The gradient of a loss after some steps of gradient descent, with respect to the initial weights (as in MAML) and to
the logarithm of a learning rate for each weight matrix. The model has three residual blocks, `x + tanh(normalised(x) @
up) @ down`, and a cross entropy loss; each step has another batch of 64 rows, drawn with the seed 1. The steps are a
scan. All methods compute the same numbers.

- *reverse over reverse*: `jax.grad` of a `lax.scan` with `jax.grad` in its body; *steps checkpointed* puts
  `jax.checkpoint` around the body.
- *MixFlow-MG*: the inner gradient is a `jax.custom_vjp` whose reverse pass is `jax.jvp` of `jax.grad`.
- *nngrad*: `nn.grad` of an `F.scan` with `nn.grad` in its body, of the same loss, opened by `nn.from_jax`, without any
  options. nngrad, in its version at the time of the measurement, chose how to differentiate.
""",
    differs="""
The paper's models are language models on accelerators, and the savings of its method grow with their depth and with
attention. The models here are small and dense. nngrad's memory is that of checkpoints at each step: it keeps the
weights of an inner step, and recomputes whatever else its reverse pass reads. So it takes about the time of the
checkpointed program, and more than the program that keeps everything where that is little. MixFlow-MG runs without the
checkpoints that the paper combines it with.
""",
    ours=OURS,
    tables=tables,
    least=True,
)
