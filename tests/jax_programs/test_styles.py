"""Training steps in the styles of programs of physics, chemistry and few-shot learning."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from nngrad.jax import graph_of_call

from .agreement import agree, agree_to_order, gradients, package

pytestmark = pytest.mark.filterwarnings("ignore")


def weights(*shapes: tuple[int, ...]) -> list[Any]:
    """Random matrices of a network."""
    rng = np.random.default_rng(0)
    return [0.5 * rng.standard_normal(shape) for shape in shapes]


def wave_function(params: Any, electrons: Any) -> Any:
    """The logarithm of a FermiNet's amplitude: streams of one and two electrons, orbitals, determinants."""
    between = electrons[:, None] - electrons
    apart = jnp.linalg.norm(between + jnp.eye(len(electrons))[..., None], axis=-1) * (1 - jnp.eye(len(electrons)))
    pairs = jnp.tanh(jnp.concatenate([between, apart[..., None]], -1) @ params[0])
    far = jnp.linalg.norm(electrons, axis=1, keepdims=True)
    one = jnp.tanh(jnp.concatenate([electrons, far, pairs.mean(0)], 1) @ params[1])
    orbitals = jnp.einsum("ni,kij->knj", one, params[2]) * jnp.exp(-far)
    signs, logs = jnp.linalg.slogdet(orbitals)
    largest = jax.lax.stop_gradient(jnp.max(logs))
    return jnp.log(jnp.abs(jnp.sum(signs * jnp.exp(logs - largest)))) + largest


def local_energy(m: Any, params: Any, electrons: Any) -> Any:
    """Kinetic energy by a loop over the Hessian's columns, as FermiNet's; and a potential."""
    flat = electrons.reshape(-1)
    gradient = m.grad(lambda x: wave_function(params, x.reshape(electrons.shape)))
    slope, along = m.linearize(gradient, flat)
    eye = jnp.eye(len(flat))
    laplacian = jax.lax.fori_loop(0, len(flat), lambda i, s: s + along(eye[i])[i], 0.0)
    apart = jnp.linalg.norm(electrons[0] - electrons[1])
    return -0.5 * (laplacian + jnp.sum(slope**2)) + 1 / apart - 2 * jnp.sum(1 / jnp.linalg.norm(electrons, axis=1))


def step_of_a_fermi_net(m: Any) -> Any:
    """Adam on the energy, by the gradient that its author's rule gives, with local energies that are clipped."""

    @jax.custom_jvp
    def energy(params: Any, walkers: Any) -> Any:
        return jnp.mean(jax.vmap(functools.partial(local_energy, m), (None, 0))(params, walkers))

    @energy.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        params, walkers = primals
        energies = jax.vmap(functools.partial(local_energy, m), (None, 0))(params, walkers)
        value = jnp.mean(energies)
        off = jnp.clip(energies - value, -2.0, 2.0)
        _, moved = m.jvp(lambda p: jax.vmap(wave_function, (None, 0))(p, walkers), (params,), (tangents[0],))
        return value, 2 * jnp.mean(off * moved)

    def step(params: Any, walkers: Any) -> Any:
        value, gradient = m.value_and_grad(energy)(params, walkers)
        adam = optax.adam(1e-2)
        return value, optax.apply_updates(params, adam.update(gradient, adam.init(params))[0]), gradient

    return step


def test_a_step_of_a_fermi_net() -> None:
    params = weights((4, 2), (6, 4), (2, 4, 2))
    agree(step_of_a_fermi_net, params, np.random.default_rng(1).standard_normal((2, 2, 3)))


def causal_loss(m: Any) -> Any:
    """The residual of Kuramoto and Sivashinsky's equation as jaxpi has it: chunks of times, each weighted by those
    before it, with weights for the terms, and gradients by the weights of the network."""

    def u(params: Any, t: Any, x: Any) -> Any:
        angles = jnp.stack([t, jnp.sin(x), jnp.cos(x)])
        return jnp.tanh(jnp.tanh(angles @ params[0]) @ params[1]) @ params[2]

    def residual(params: Any, t: Any, x: Any) -> Any:
        first = m.grad(u, argnums=2)
        second = m.grad(first, argnums=2)
        fourth = m.grad(m.grad(second, argnums=2), argnums=2)
        values = [f(params, t, x) for f in (m.grad(u, argnums=1), u, first, second, fourth)]
        return values[0] + values[1] * values[2] + values[3] + values[4]

    def loss(params: Any, at: Any, scales: Any) -> Any:
        t, x = at
        squares = jax.vmap(jax.vmap(residual, (None, None, 0)), (None, 0, None))(params, t, x) ** 2
        chunks = jnp.mean(squares.reshape(2, -1), 1)
        lower = np.tril(np.ones((2, 2)), -1)
        gate = jax.lax.stop_gradient(jnp.exp(-0.1 * (lower @ chunks)))
        started = jax.vmap(lambda x: u(params, 0.0, x) - jnp.sin(x))(x)
        terms = {"ics": jnp.mean(started**2), "res": jnp.mean(chunks * gate)}
        return sum([scales[name] * term for name, term in terms.items()])

    return m.value_and_grad(loss)


def test_a_loss_with_fourth_derivatives_and_array_weights() -> None:
    rng = np.random.default_rng(1)
    at, scales = (rng.uniform(size=2), rng.uniform(size=3)), {"ics": np.array(10.0), "res": np.array(1.0)}
    agree(causal_loss, weights((3, 4), (4, 4), (4,)), at, scales)


def energies(params: Any, positions: Any, neighbours: Any) -> Any:
    """An energy like NequIP's: radial functions with a cutoff times harmonics of two orders, summed over a list of
    neighbours that is padded, their products contracted to numbers."""
    padded = jnp.concatenate([positions, jnp.full((1, 3), 9.0)])
    vectors = padded[neighbours] - positions[:, None]
    there = neighbours < len(positions)
    squared = jnp.where(there, jnp.sum(vectors**2, -1), 1.0)
    r = jnp.sqrt(squared)
    inside = jnp.where(there & (r < 3), (1 - (r / 3) ** 2) ** 3, 0.0)
    radial = jnp.sin(r[..., None] * jnp.arange(1, 4)) / r[..., None] * inside[..., None]
    unit = vectors / r[..., None]
    second = unit[..., None] * unit[..., None, :] - jnp.eye(3) / 3
    one = jnp.einsum("nkr,rc,nka->nca", radial, params[0], unit)
    two = jnp.einsum("nkr,rc,nkab->ncab", radial, params[1], second)
    scalars = jnp.einsum("nca,ncab,ncb->nc", one, two, one) + jnp.sum(one**2, -1)
    return jax.nn.silu(scalars @ params[2]) @ params[3]


def loss_of_forces(m: Any) -> Any:
    """The training gradient of a loss on energies and forces."""

    def loss(params: Any, positions: Any, neighbours: Any, forces: Any) -> Any:
        energy, slope = m.value_and_grad(lambda x: jnp.sum(energies(params, x, neighbours)))(positions)
        return jnp.mean((slope + forces) ** 2) + 0.1 * energy**2

    return m.value_and_grad(loss)


def test_forces_with_neighbour_lists() -> None:
    rng = np.random.default_rng(1)
    positions = rng.standard_normal((4, 3))
    neighbours = np.array([[1, 2, 3], [0, 2, 4], [0, 1, 4], [0, 4, 4]])
    params = weights((3, 2), (3, 2), (2, 4), (4,))
    agree(loss_of_forces, params, positions, neighbours, rng.standard_normal((4, 3)))
    agree_to_order(3, lambda x: jnp.sum(jnp.tanh(energies(params, x, neighbours))), positions)


def test_steps_within_are_copied_and_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    anew: list[Any] = []
    opened_apart = graph_of_call.opened_apart
    monkeypatch.setattr(graph_of_call, "opened_apart", lambda *given: anew.append(given) or opened_apart(*given))
    scale = np.array([1.0, -0.5, 2.0])

    def adapted(m: Any) -> Any:
        def loss(weights: Any, rows: Any) -> Any:
            return jnp.mean((jnp.tanh(rows @ weights) * scale - 0.1 * rows) ** 2)

        def of_one(weights: Any, task: Any) -> Any:
            moved = weights
            for _ in range(2):  # the first from weights that all tasks share, the second from a task's own
                moved = moved - 0.5 * m.grad(loss)(moved, task[0])
            slope, curved = m.jvp(lambda w: m.grad(loss)(w, task[0]), (weights,), (weights,))
            return loss(moved, task[1]) + 0.1 * jnp.sum(slope * curved)

        return lambda weights, tasks: jnp.sum(jax.vmap(of_one, (None, 0))(weights, tasks))

    at = np.random.default_rng(0).standard_normal((3, 3)), np.random.default_rng(1).standard_normal((2, 2, 4, 3))
    agree(lambda m: gradients(adapted(m), m, 2), *at)
    agree(lambda m: lambda *at: m.grad(adapted(m), argnums=1)(*at), *at)
    assert not anew


def flax_transformer() -> Any:
    """A block of a transformer by Flax: its function of weights and words, and weights."""
    linen = package("flax.linen")

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            y = linen.LayerNorm(param_dtype=jnp.float64)(x)
            mask = linen.make_causal_mask(x[..., 0])
            x = x + linen.MultiHeadDotProductAttention(2, param_dtype=jnp.float64)(y, mask=mask)
            return x + linen.Dense(4, param_dtype=jnp.float64)(linen.gelu(linen.Dense(4, param_dtype=jnp.float64)(x)))

    block = Block()
    return block.apply, block.init(jax.random.key(0), jnp.zeros((3, 4)))


def equinox_transformer() -> Any:
    """The same by Equinox."""
    equinox = package("equinox")
    keys = jax.random.split(jax.random.key(0), 2)
    attention = equinox.nn.MultiheadAttention(2, 4, key=keys[0], dtype=jnp.float64)
    network = equinox.nn.MLP(4, 4, 4, 1, jax.nn.gelu, key=keys[1], dtype=jnp.float64)
    norm = equinox.nn.LayerNorm(4, dtype=jnp.float64)
    arrays, rest = equinox.partition((attention, network, norm), equinox.is_inexact_array)

    def apply(arrays: Any, x: Any) -> Any:
        attention, network, norm = equinox.combine(arrays, rest)
        y = jax.vmap(norm)(x)
        x = x + attention(y, y, y, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)))
        return x + jax.vmap(network)(x)

    return apply, arrays


@pytest.mark.slow
@pytest.mark.parametrize("library", [flax_transformer, equinox_transformer])
def test_maml_of_transformers(library: Any) -> None:
    with jax.enable_x64(True):
        apply, params = library()
    rng = np.random.default_rng(1)

    def meta(m: Any) -> Any:
        def loss(params: Any, x: Any) -> Any:
            return jnp.mean((apply(params, x)[:-1] - x[1:]) ** 2)

        def adapted(params: Any, tasks: Any) -> Any:
            def of_one(task: Any) -> Any:
                slope = m.grad(loss)(params, task[0])
                return loss(jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), task[1])

            return jnp.mean(jax.vmap(of_one)(tasks))

        def product(params: Any, tasks: Any) -> Any:
            return m.jvp(lambda p: m.grad(adapted)(p, tasks), (params,), (jax.tree.map(jnp.cos, params),))

        return product

    agree(meta, params, rng.standard_normal((2, 2, 3, 4)))
