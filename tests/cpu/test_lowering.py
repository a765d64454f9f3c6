"""What the compilers of platforms that are not at hand get: no device is asked for, and nothing of a CPU is in it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.cpu.substitutes import SUBSTITUTES
from nngrad.extend import Program, Variable, linearize, lower, x64_if
from nngrad.graph.jaxpr import primitives_in
from tests.lowered import PLATFORMS, detours, lowered_for, turned
from tests.oracle import as_tuple, nngrad_graph, projections
from tests.samples import FAMILIES, Sample, all_samples
from tests.slow import slow_but_every

RNG = np.random.default_rng(0)


def traced(program: Program, function: Any = lower) -> Any:
    """A program, traced by JAX as one function."""
    with x64_if(program.block.needs_x64):
        return jax.jit(function(program)).trace(*[spec.abstract() for spec in program.block.inputs])


def program_of_sample(sample: Sample) -> Program:
    """All orders of a sample, as one program, in float32."""
    rng = np.random.default_rng(7)
    inputs = [draw(rng) for draw in sample.inputs]
    inputs = [x.astype(np.float32) if x.dtype == np.float64 else x for x in inputs]
    leaves = [Variable.from_numpy_array(x) for x in inputs]

    def function(*xs: Variable) -> Any:
        return getattr(F, sample.name)(*xs, **sample.arguments)

    outputs = as_tuple(function(*leaves))
    directions = projections(rng, outputs, inputs, sample.orders) if sample.orders else []
    levels = nngrad_graph(function, leaves, directions, sample.orders)
    return linearize([y for level in levels for y in level], first=leaves).program


def test_what_has_no_loops_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes for CPUs change the sum, so that it is traced where it is lowered."""
    calls: list[Any] = []
    forward = F.tanh.forward

    def counted(a: Any) -> Any:
        calls.append(a.shape)
        return forward(a)

    x = nn.Variable((4, 2048))
    y = F.sum(F.tanh(x), axis=0)
    monkeypatch.setattr(F.tanh, "forward", counted)
    traced = jax.jit(nn.to_jax(y, x)).trace(np.zeros((4, 2048), "f"))
    assert not calls
    traced.lower()
    assert calls == [(4, 2048)]


@pytest.mark.parametrize("family", slow_but_every(6, FAMILIES))
def test_every_function_is_lowered_at_every_order(family: str) -> None:
    """One sample of each, for all platforms at once; in float32 all of it is in float32, since TPUs have nothing else.
    """
    for sample in {sample.name: sample for sample in sorted(all_samples(family), key=lambda s: s.orders)}.values():
        program = program_of_sample(sample)
        with x64_if(program.block.needs_x64):
            text = lowered_for(traced(program), *PLATFORMS)
        assert not detours(text), sample.id
        assert not turned(text) or sample.arguments.get("channel_last"), sample.id
        asked = any(a in ("float64", np.float64) for a in sample.arguments.values())
        assert ("f64" in text) == asked, sample.id


# ---------------------------------------------------------------- what is for CPUs alone


def leaf(*shape: int) -> Variable:
    return Variable.from_numpy_array((0.3 * RNG.standard_normal(shape)).astype(np.float32), need_grad=True)


def critic() -> tuple[list[Variable], list[Variable]]:
    """A gradient penalty on a small critic, and its gradient."""
    x, w, v = leaf(2, 3, 6, 6), leaf(4, 3, 3, 3), leaf(5, 4, 3, 3)
    y = F.sum(F.tanh(F.convolution(F.tanh(F.convolution(x, w)), v)))
    (slope,) = nn.grad([y], [x])
    penalty = F.mean((F.sum(slope**2, axis=(1, 2, 3)) - 1) ** 2)
    return [penalty, *nn.grad([penalty], [w, v])], [x, w, v]


def test_other_forwards_for_cpus_give_the_same() -> None:
    x, dy, big = leaf(2, 5, 5, 3), leaf(2, 3, 2, 3), leaf(3, 2, 700)
    points, weights, sums = leaf(2, 3, 9), leaf(2, 4, 5), leaf(2, 3, 5)
    indices = Variable.from_numpy_array(RNG.integers(-1, 10, (2, 4, 5)).astype(np.int32))
    applied = [
        F.sum(big, axis=0), F.sum(leaf(9, 700), axis=0), F.sum(big, axis=(0, 1), keepdims=True),
        F.sum(big, axis=1, keepdims=True), F.sum(leaf(3, 2, 4, 700), axis=(1, 2)), F.sum(leaf(2, 3, 2, 700), (0, -2)),
        F.sum(F.sin(F.cast(big, "float16")), axis=0), F.optimization_barrier(x, dy, big),
        F.weighted_points(points, weights, indices), F.weighted_points_weight_grad(sums, points, indices),
    ]  # fmt: skip
    for y in applied:
        f = y.parent
        arrays = [v.d if v.parent is None else np.asarray(v.data.data) for v in f.inputs]
        other = SUBSTITUTES[f.op]([v.spec for v in f.inputs], f.op.named(f.arguments))
        assert other is not None
        np.testing.assert_allclose(
            f.op.bind(f.arguments, other)(*arrays), f.op.bind(f.arguments)(*arrays), rtol=2e-3, atol=1e-6
        )
    for small in (F.sum(leaf(3, 100), axis=0), F.sum(leaf(700, 9, 4), axis=1), F.sum(leaf(2, 4, 700), axis=-1)):
        assert SUBSTITUTES[F.sum]([v.spec for v in small.parent.inputs], F.sum.named(small.parent.arguments)) is None


def test_sums_of_slices_of_sums_write_what_the_inner_ones_come_to() -> None:
    x = leaf(3, 8, 32, 700)
    y = F.sum(F.tanh(F.sum(x**2, axis=0)), axis=0)
    compiled = jax.jit(nn.to_jax([y], [x])).lower(x.d).compile()
    np.testing.assert_allclose(compiled(x.d)[0], np.tanh((x.d**2).sum(0)).sum(0), rtol=1e-6)
    assert compiled.memory_analysis().temp_size_in_bytes < 1.1 * x.data.raw().nbytes / 3  # its squares are thrice that


def test_slices_of_what_a_product_reads_are_added_in_one_loop() -> None:
    x, w = leaf(64, 8, 128), leaf(128, 128)
    h = x**3 - x
    y = F.sum((h @ w + F.sum(h, axis=1, keepdims=True) @ w) * x, axis=(1, 2))
    compiled = jax.jit(nn.to_jax([y], [x, w])).lower(x.d, w.d).compile()
    expected = ((h.d @ w.d + h.d.sum(1, keepdims=True) @ w.d) * x.d).sum((1, 2))
    np.testing.assert_allclose(compiled(x.d, w.d)[0], expected, rtol=1e-4, atol=1e-3)
    assert (compiled.as_text() or "").count("kind=kLoop") < 8


class OnHost(nn.CustomFunction):
    """The user's own, in NumPy."""

    numpy = True

    def forward(self, x: Any) -> Any:
        return np.sin(x)

    def backward(self, f: nn.Function, gy: Variable) -> Any:
        return gy * F.cos(f.inputs[0])


def test_functions_of_the_users_on_the_host_are_the_exception() -> None:
    x, w = leaf(1, 1, 4, 4), leaf(1, 1, 2, 2)
    (g,) = nn.grad([F.sum(OnHost()(F.convolution(x, w)) ** 2)], [x])
    program = traced(linearize([g]).program)
    (name,) = detours(lowered_for(program, "cpu"))
    assert "callback" in name
    for platform in PLATFORMS:  # JAX calls the host from devices that are there, and from no others
        with pytest.raises((ValueError, NotImplementedError), match="platform"):
            lowered_for(program, platform)
    # Updates wait for what may raise on the host, also where the function is not traced before it is lowered.
    assert "pure_callback" in primitives_in(program.jaxpr.jaxpr)


# ---------------------------------------------------------------- functions that are handed to JAX


def near(ours: Any, other: Any) -> None:
    """Compare in float32, relative to the largest."""
    np.testing.assert_allclose(ours, other, rtol=0, atol=1e-5 * np.abs(other).max())


def test_functions_are_exported_for_other_platforms() -> None:
    outputs, inputs = critic()
    arrays = [x.d for x in inputs]
    function = nn.to_jax(outputs, inputs)
    everywhere = export.export(jax.jit(function), platforms=["cpu", *PLATFORMS])(*arrays)
    assert everywhere.platforms == ("cpu", *PLATFORMS)
    for ours, own in zip(everywhere.call(*arrays), jax.jit(function)(*arrays), strict=True):
        near(ours, own)
    elsewhere = export.export(jax.jit(function), platforms=["cuda"])(*arrays)
    assert not turned(elsewhere.mlir_module()) and turned(everywhere.mlir_module())


def test_functions_are_transformed_before_they_are_lowered() -> None:
    x, w = leaf(2, 3, 6, 6), leaf(4, 3, 3, 3)
    y = F.sum(F.tanh(F.convolution(x, w)) ** 2)
    function = nn.to_jax(y, [x, w])
    slope = jax.jit(jax.grad(function, argnums=1))
    near(slope(x.d, w.d), nn.grad([y], [w])[0].d)
    text = lowered_for(slope.trace(x.d, w.d), *PLATFORMS)
    assert not turned(text) and not detours(text)
    both = jax.jit(jax.vmap(function, in_axes=(0, None)))(np.stack([0 * x.d, x.d]), w.d)
    near(both, [0, y.d])

    linear = nn.to_jax(F.convolution(x, w), [x, w])
    z = linear(x.d, w.d)
    (back,) = jax.linear_transpose(lambda x: linear(x, w.d), x.spec.abstract())(z)
    near(np.vdot(back, x.d), np.vdot(z, z))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_functions_run_within_a_mesh(kind: AxisType) -> None:
    mesh = jax.make_mesh((1,), ("data",), axis_types=(kind,))
    x, w = leaf(2, 3, 6, 6), leaf(4, 3, 3, 3)
    function = nn.to_jax(F.tanh(F.convolution(x, w)), [x, w])
    divided = jax.device_put(x.d, jax.NamedSharding(mesh, P("data")))
    whole = jax.device_put(w.d, jax.NamedSharding(mesh, P()))
    mapped = jax.shard_map(function, mesh=mesh, in_specs=(P("data"), P()), out_specs=P("data"))
    for way in (mapped, function):
        near(jax.jit(way)(divided, whole), function(x.d, w.d))


def training() -> tuple[Any, Variable]:
    """A step with a penalty on gradients, running statistics and dropout."""
    nn.clear_parameters()
    nn.seed(0)
    x = nn.Variable((4, 2, 6, 6), need_grad=True)
    with nn.parameter_scope("network"):
        h = F.tanh(PF.batch_normalization(PF.convolution(x, 3, (3, 3)), no_scale=False))
        y = PF.affine(F.dropout(h, 0.25), 1, with_bias=False)
    (slope,) = nn.grad([F.sum(y)], [x])
    loss = F.mean((F.sum(slope**2, axis=(1, 2, 3)) - 1) ** 2)
    return nn.train_step(loss, nn.get_parameters(), S.Adam(0.01), inputs=[x]), x


def test_training_steps_are_lowered() -> None:
    step, x = training()
    function, carried = step.to_jax()
    batch = leaf(*x.shape).d
    key = jax.random.key(0)
    program = jax.jit(function).trace(carried, batch, key=key)
    text = lowered_for(program, *PLATFORMS)
    assert "stablehlo.convolution" in text
    assert not turned(text) and not detours(text)
    before = {name: p.d.copy() for name, p in nn.get_parameters(grad_only=False).items()}
    losses = []
    run = jax.jit(function)
    for i in range(3):
        loss, carried = run(carried, batch, key=jax.random.key(i))
        losses.append(float(loss))
    assert len(set(losses)) == 3 and np.isfinite(losses).all()
    for name, p in nn.get_parameters(grad_only=False).items():
        np.testing.assert_array_equal(p.d, before[name])  # nothing was written
    with pytest.raises(ValueError, match="key: "):
        function(carried, batch)


def test_steps_as_functions_are_those_that_train() -> None:
    nn.clear_parameters()
    x = nn.Variable((5, 3))
    y = PF.batch_normalization(PF.affine(x, 2))
    step = nn.train_step(F.mean((y - x[:, :2]) ** 2), nn.get_parameters(), S.Adam(0.1), inputs=[x])
    function, carried = step.to_jax()
    batch = leaf(5, 3).d
    run = jax.jit(function)
    for _ in range(3):
        loss, carried = run(carried, batch)
        near(loss, step(batch))
    for name, p in nn.get_parameters().items():
        near(carried["parameters"][name], p.d)
    written = [p.d for name, p in nn.get_parameters(grad_only=False).items() if name in ("bn/mean", "bn/var")]
    for ours, own in zip(carried["leaves"], written, strict=True):
        near(ours, own)
