"""Training an interatomic potential on energies, forces, stresses and products with Hessians, beside the same in JAX.

The network passes messages along the edges of a crystal of 200 atoms: 3,602 of them, filled up to 4,000. What is timed
is the loss and the gradients of all weights, so third derivatives. In chunks, messages are summed over a part of the
edges after another, and gradients compute them again, and the layers of the atoms as well; what is kept of each edge is
its length. As an Equinox model, the weights are those of its layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj

from .harness import Case, Way, in_jax, in_nngrad

OURS, BY_JAX, PEER, CHUNKED = "nngrad", "nngrad.jax", "jax", "nngrad, in chunks"
BY_MODEL, MODEL = "nngrad.jax, Equinox", "jax, Equinox"
CUTOFF, RADIAL, CHUNKS = 1.6, 20, 40
Array = np.ndarray[Any, Any]
Sums = Callable[[Callable[[Any], Any], Any, Any], Any]
"""What a function gives of all edges, summed: `sums(function, edges, begin)`, from zeros."""


class Parts(NamedTuple):
    """How an energy is computed."""

    sums: Sums
    """Over edges."""
    layers: Callable[[Callable[..., Any]], Callable[..., Any]]
    """What is made of layers of atoms: themselves, or checkpoints of them."""


class Edges(NamedTuple):
    """Numbers of the atoms at both ends, what is added to the difference of their positions, and whether there is such
    an edge, (edges, 1)."""

    start: Any
    end: Any
    offset: Any
    exists: Any


class Messages(NamedTuple):
    """What goes along edges depends on: the atoms at both ends, the length, and whether there is such an edge."""

    start: Any
    end: Any
    length: Any
    exists: Any


class Crystal(NamedTuple):
    """A structure, and what it is trained on."""

    edges: Edges
    positions: Array
    along: Array
    forces: Array
    column: Array
    stress: Array


class Library(NamedTuple):
    """What an energy is written with."""

    of: Any
    """F, or `jax.numpy`."""
    swish: Callable[..., Any]
    minimum: Callable[..., Any]
    gather: Callable[[Any, Any], Any]
    scatter: Callable[[Any, Any, int], Any]
    """Rows that belong to the same atom, summed."""
    array: Callable[[Any], Any]


WITH_F = Library(
    F, F.swish, F.minimum_scalar, lambda x, i: F.gather(x, i, axis=0),
    lambda x, i, n: F.scatter_nd(x, F.reshape(i, shape=(1, -1)), shape=(n, x.shape[1]), add=True),
    nn.Variable.from_numpy_array,
)  # fmt: skip
WITH_JAX = Library(jnp, jax.nn.swish, jnp.minimum, lambda x, i: x[i], jax.ops.segment_sum, jnp.asarray)


def crystal(rng: np.random.Generator, cells: tuple[int, int, int], edges: int) -> Crystal:
    """Four atoms in each cell, shaken."""
    basis = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2
    corners = np.array(list(itertools.product(*map(range, cells))))
    x = np.sqrt(2) * (corners[:, None] + basis).reshape(-1, 3)
    x += 0.03 * rng.standard_normal(x.shape)
    images = np.sqrt(2) * np.array(list(itertools.product((-1, 0, 1), repeat=3))) * cells
    lengths = np.linalg.norm(x[None, :, None] - x[:, None, None] + images, axis=-1)
    start, end, image = np.nonzero((lengths < CUTOFF) & (lengths > 0))
    lacking = edges - len(start)
    found = start.astype("i"), end.astype("i"), images[image].astype("f"), np.ones((len(start), 1), bool)
    filled = [np.pad(a, [(0, lacking), *[(0, 0)] * (a.ndim - 1)]) for a in found]
    along, forces, column = rng.standard_normal((3, *x.shape)).astype("f")
    return Crystal(Edges(*filled), x.astype("f"), along, forces, column, rng.standard_normal((3, 3)).astype("f"))


def weights(rng: np.random.Generator, width: int, layers: int) -> list[Array]:
    """Of filters, of what is sent, and of two layers of each atom."""
    shapes = [(RADIAL, width), *[(RADIAL, width), *[(width, width)] * 3] * layers, (width, width), (width, 1)]
    return [(rng.standard_normal(s) / s[0] ** 0.5).astype("f") for s in shapes]


def lengths(lib: Library, edges: Edges, x: Any, strain: Any) -> Messages:
    """The edges by their lengths, (edges, 1)."""
    apart = lib.gather(x, edges.end) - lib.gather(x, edges.start) + edges.offset
    apart = apart + apart @ strain
    length = lib.of.where(edges.exists, lib.of.sum(apart**2, axis=1, keepdims=True), 1.0) ** 0.5
    return Messages(edges.start, edges.end, length, edges.exists)


def centres() -> Array:
    """Of the radial basis."""
    return np.linspace(0.6, CUTOFF, RADIAL, dtype=np.float32)[None]


def radial_basis(lib: Library, edges: Messages, centres: Any) -> Any:
    """What depends on the length of each edge, (edges, RADIAL)."""
    m, r = lib.of, edges.length
    cut = (1 - lib.minimum(r / CUTOFF, 1.0) ** 2) ** 4
    return m.where(edges.exists, m.exp(-((RADIAL / 2 * (r - centres)) ** 2)) * cut, 0.0)


def energy(lib: Library, parts: Parts, ws: list[Any], edges: Edges, x: Any, strain: Any) -> Any:
    """Of all atoms."""
    m, each, middles, along = lib.of, iter(ws), lib.array(centres()), lengths(lib, edges, x, strain)
    sent = parts.layers(lambda h, w: lib.swish(h) @ w)
    updated = parts.layers(lambda h, arrived, inner, added: h + lib.swish(arrived @ inner) @ added)
    summed = parts.layers(lambda h, inner, last: m.sum(lib.swish(h @ inner) @ last))

    def message(w: Any, sent: Any) -> Any:
        def of_edges(edges: Messages) -> Any:
            radial = radial_basis(lib, edges, middles)
            each = radial @ w if sent is None else (radial @ w) * lib.gather(sent, edges.end)
            return lib.scatter(each, edges.start, x.shape[0])

        return parts.sums(of_edges, along, np.zeros((x.shape[0], w.shape[1]), x.dtype))

    h = message(next(each), None)
    for _ in range(len(ws) // 4):  # and three more weights
        filters = next(each)
        arrived = message(filters, sent(h, next(each)))
        h = updated(h, arrived, next(each), next(each))
    return summed(h, next(each), next(each))


def at_once(function: Callable[[Any], Any], edges: Messages, begin: Any) -> Any:
    """All edges together."""
    return function(edges)


def in_chunks(function: Callable[[Any], Any], edges: Messages, begin: Any) -> Any:
    """A chunk after another, which gradients compute again; the sum is carried, where a map would stack all of them."""
    stacks = Messages(*[F.reshape(e, shape=(CHUNKS, -1, *e.shape[1:])) for e in edges])
    of_chunk = nn.checkpoint(function)
    total, _ = F.scan(lambda total, chunk: (total + of_chunk(chunk), None), begin, stacks)
    return total


AT_ONCE = Parts(at_once, lambda layers: layers)
IN_CHUNKS = Parts(in_chunks, nn.checkpoint)


def squared(m: Any, at: Crystal, e: Any, slope: Any, stress: Any, column: Any) -> Any:
    """The loss."""
    apart = (slope + at.forces, 1), (stress - at.stress, 1), (column - at.column, 1e-2)
    return 1e-4 * e**2 + sum([weight * m.mean(y**2) for y, weight in apart])


def ours(at: Crystal, ws: list[Array], parts: Parts) -> tuple[list[nn.Variable], list[nn.Variable]]:
    """By F: the loss and its gradients, of the edges, positions and weights."""
    own = [nn.Variable.from_numpy_array(w, need_grad=True) for w in ws]
    edges = Edges(*map(nn.Variable.from_numpy_array, at.edges))
    x = nn.Variable.from_numpy_array(at.positions)
    strain = nn.Variable.from_numpy_array(np.zeros((3, 3), at.positions.dtype))
    e = energy(WITH_F, parts, own, edges, x, strain)
    slope, stress = nn.grad(e, [x, strain])
    (column,) = nn.hvp(e, x, at.along)
    loss = squared(F, at, e, slope, stress, column)
    return [loss, *nn.grad(loss, own)], [*edges, x, *own]


class Interaction(eqx.Module):
    """Messages along edges, weighted by filters of their lengths."""

    filters: eqx.nn.Linear
    sent: eqx.nn.Linear
    inner: eqx.nn.Linear
    added: eqx.nn.Linear

    def __init__(self, width: int, keys: Any) -> None:
        sizes = (RADIAL, width), *[(width, width)] * 3
        layers = [eqx.nn.Linear(*size, use_bias=False, key=next(keys)) for size in sizes]
        self.filters, self.sent, self.inner, self.added = layers

    def __call__(self, h: Any, radial: Any, edges: Edges) -> Any:
        filters, sent = jax.vmap(self.filters)(radial), jax.vmap(self.sent)(jax.nn.swish(h))
        arrived = jax.ops.segment_sum(filters * sent[edges.end], edges.start, len(h))
        return h + jax.vmap(self.added)(jax.nn.swish(jax.vmap(self.inner)(arrived)))


class Potential(eqx.Module):
    """The same energy as an Equinox model."""

    first: eqx.nn.Linear
    interactions: list[Interaction]
    inner: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, width: int, layers: int, key: Any) -> None:
        keys = iter(jax.random.split(key, 3 + 4 * layers))
        self.first = eqx.nn.Linear(RADIAL, width, use_bias=False, key=next(keys))
        self.interactions = [Interaction(width, keys) for _ in range(layers)]
        self.inner = eqx.nn.Linear(width, width, use_bias=False, key=next(keys))
        self.last = eqx.nn.Linear(width, 1, use_bias=False, key=next(keys))

    def __call__(self, edges: Edges, x: Any, strain: Any) -> Any:
        radial = radial_basis(WITH_JAX, lengths(WITH_JAX, edges, x, strain), centres())
        h = jax.ops.segment_sum(jax.vmap(self.first)(radial), edges.start, len(x))
        for interaction in self.interactions:
            h = interaction(h, radial, edges)
        return jnp.sum(jax.vmap(self.last)(jax.nn.swish(jax.vmap(self.inner)(h))))


def model_of(ws: list[Any]) -> Potential:
    """With these weights, which a layer holds transposed."""
    empty = eqx.filter_eval_shape(Potential, ws[0].shape[1], len(ws) // 4, jax.random.key(0))
    found: Potential = jax.tree.unflatten(jax.tree.structure(empty), [w.T for w in ws])
    return found


def derivatives(lib: Any, f: Callable[..., Any], at: Crystal, x: Any) -> Any:
    """The energy, its slopes by positions and strain, and the product with the Hessian, by `jax` or `nngrad.jax`."""
    strain = jnp.zeros((3, 3), x.dtype)
    pushed = lib.jvp(lib.value_and_grad(f, (0, 1)), (x, strain), (at.along, strain))
    (e, (slope, stress)), (_, (column, _)) = pushed
    return e, slope, stress, column


def with_jax(lib: Any, at: Crystal) -> Callable[..., Any]:
    """By `jax`, or by `nngrad.jax`: of the same."""

    def loss(ws: list[Any], edges: Edges, x: Any) -> Any:
        return squared(jnp, at, *derivatives(lib, partial(energy, WITH_JAX, AT_ONCE, ws, edges), at, x))

    return lambda *given: lib.value_and_grad(loss)(list(given[5:]), Edges(*given[:4]), given[4])


def with_equinox(lib: Any, at: Crystal) -> Callable[..., Any]:
    """The same of the Equinox model, which is what the loss is differentiated by."""

    def loss(model: Potential, edges: Edges, x: Any) -> Any:
        return squared(jnp, at, *derivatives(lib, partial(model, edges), at, x))

    def step(*given: Any) -> Any:
        value, gradients = lib.value_and_grad(loss)(model_of(list(given[5:])), Edges(*given[:4]), given[4])
        return value, [g.T for g in jax.tree.leaves(gradients)]

    return step


def along(lib: Any, at: Crystal, order: int) -> Callable[..., Any]:
    """Order 2: a column of the Hessian by positions. Order 3: the gradients of all weights of the mean square of its
    derivative along the same direction, fourth derivatives."""

    def of(ws: list[Any], edges: Edges, x: Any) -> Any:
        strain = jnp.zeros((3, 3), x.dtype)
        found = lib.grad(lambda x: energy(WITH_JAX, AT_ONCE, ws, edges, x, strain))
        for _ in range(order - 1):
            found = partial(lambda f, x: lib.jvp(f, (x,), (at.along,))[1], found)
        return found(x) if order == 2 else jnp.mean(found(x) ** 2)

    by_weights = lib.grad(of) if order > 2 else of
    return lambda *given: by_weights(list(given[5:]), Edges(*given[:4]), given[4])


def cases(smoke: bool) -> Iterable[Case]:
    """By F and by `nngrad.jax`, of functions and of a model, each beside the same by JAX; and in chunks. Then
    derivatives along one direction."""
    rng = np.random.default_rng(0)
    at = crystal(rng, (2, 1, 1) if smoke else (5, 5, 2), 200 if smoke else 4000)
    ws = weights(rng, *((4, 0) if smoke else (64, 3)))
    given = (*at.edges, at.positions, *ws)
    ways: dict[str, Way] = {
        OURS: lambda: in_nngrad(*ours(at, ws, AT_ONCE)),
        PEER: lambda: in_jax(with_jax(jax, at), *given), BY_JAX: lambda: in_jax(with_jax(nj, at), *given),
        MODEL: lambda: in_jax(with_equinox(jax, at), *given), BY_MODEL: lambda: in_jax(with_equinox(nj, at), *given),
        CHUNKED: lambda: in_nngrad(*ours(at, ws, IN_CHUNKS)),
    }  # fmt: skip
    pairs = [(OURS, PEER), (BY_JAX, PEER), (BY_MODEL, MODEL), (CHUNKED, OURS)]
    what = f"potential, {len(at.positions)} atoms, {len(at.edges.start):,} edges: loss and gradients"
    yield Case(what, ways, pairs, ("time", "first result", "temporaries"))
    for order, of in ((2, "a column of the Hessian"), (3, "fourth order in the loss")):
        two: dict[str, Way] = {
            name: lambda lib=lib, order=order: in_jax(along(lib, at, order), *given)
            for name, lib in ((BY_JAX, nj), (PEER, jax))
        }
        yield Case(f"potential, {len(at.positions)} atoms: {of}", two, measures=("time", "first result"))
