"""forward(), backward(), executables, contexts, and graphs as JAX functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff.walk import Grad
from nngrad.functions.control import with_updates
from nngrad.graph import Variable
from tests import leaves
from tests.processes import printed_by

vector = partial(leaves.vector, dtype=np.float32)


@pytest.fixture
def emissions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each gradient that is emitted."""
    calls: list[int] = []
    original = Grad.walk

    def counted(self: Grad, *args: Any) -> list[Variable]:
        calls.append(1)
        return original(self, *args)

    monkeypatch.setattr(Grad, "walk", counted)
    return calls


# ---------------------------------------------------------------- forward


def test_forward_freezes_a_leaf_that_is_filled_or_swapped_or_written_in_part() -> None:
    x = vector(1.0, 2.0)
    y = x * 3
    for change in (
        lambda: x.data.fill(7.0),
        lambda: x.data.zero(),
        lambda: x.data.__setitem__(0, 9.0),
        lambda: x.data.copy_from(nn.NdArray.from_numpy_array([5.0, 5.0])),
        lambda: setattr(x, "data", nn.NdArray.from_numpy_array([4.0, 4.0])),
    ):
        x.d = [1.0, 2.0]
        y.forward()
        change()
        assert y.d.tolist() == [3, 6]


def test_a_numpy_array_that_was_given_may_change_afterwards() -> None:
    for size in (2, 1 << 15):
        array = np.ones(size, np.float32)
        x = Variable.from_numpy_array(array)
        y = x * 2
        y.forward()
        array[:] = 5
        assert y.d[0] == 2 and x.d[0] == 1
        x.d = array
        array[:] = 7
        assert x.d[0] == 5


def test_forward_all_shares_a_snapshot_and_an_executable() -> None:
    x = vector(0.5)
    h = F.exp(x)
    y, z = h * 2, h * 3
    before = nn.executables.info()
    nn.forward_all([y, z, x])
    x.d = 9.0
    assert y.d * 3 == z.d * 2 == pytest.approx(6 * np.exp(0.5), rel=1e-5)
    after = nn.executables.info()
    assert after.hits + after.misses == before.hits + before.misses + 1
    with pytest.raises(TypeError, match=r"variables\[1\]"):
        nn.forward_all([y, 3.0])  # type: ignore[list-item]


# ---------------------------------------------------------------- backward


def test_forward_and_backward_are_one_executable() -> None:
    x, w = vector(0.5, 0.25), vector(2.0, 3.0)
    y = F.sum(F.tanh(x * w) * 1.0625)
    nn.executables.clear()
    y.forward()
    before = nn.executables.info()
    y.backward()
    t = np.tanh(x.d * w.d)
    np.testing.assert_allclose(y.d, 1.0625 * np.sum(t), rtol=1e-6)
    assert nn.executables.info().misses == before.misses + 1
    used = nn.executables.info()
    np.testing.assert_allclose(w.g, 1.0625 * (1 - t * t) * x.d, rtol=1e-5)
    assert nn.executables.info() == used


def test_a_leaf_that_stays_is_moved_to_jax_once() -> None:
    x, t = vector(0.5, 0.25), vector(2.0, 3.0)
    y = F.sum(x * t)
    for i in range(3):
        t.d = [i, 1.0]
        y.forward()
        assert y.d == 0.5 * i + 0.25
    assert isinstance(x.data.raw(), jax.Array)
    assert isinstance(t.data.raw(), np.ndarray)


def test_a_rebuilt_graph_is_neither_emitted_nor_compiled_again(emissions: list[int]) -> None:
    w = vector(0.5, 0.25)

    def step(data: Any) -> float:
        x = Variable.from_numpy_array(data)
        y = F.sum(F.sin(x * w) * 1.125)
        w.grad.zero()
        y.forward()
        y.backward()
        np.testing.assert_allclose(w.g, 1.125 * np.cos(data * w.d) * data, rtol=1e-5)
        w.d = w.d - 0.1 * w.g
        return float(y)

    first = step(np.float32([1.0, 2.0]))
    misses, emitted = nn.executables.info().misses, len(emissions)
    rest = [step(np.float32([1.0, 2.0])) for _ in range(5)]
    assert nn.executables.info().misses == misses
    assert len(emissions) == emitted == 1
    assert sorted([first, *rest], reverse=True) == [first, *rest]


def test_what_changes_the_gradient_is_not_served_from_the_cache(emissions: list[int]) -> None:
    x, w = vector(2.0), vector(3.0)

    def gradients() -> list[float]:
        h = F.exp(x * 0.5)
        h.need_grad = stop
        y = h * w * x
        x.grad.zero()
        w.grad.zero()
        y.backward()
        return [x.g.item(), w.g.item()]

    stop: bool | None = None
    full = gradients()
    stop = False
    stopped = gradients()
    e = np.exp(1.0)
    assert full == pytest.approx([3 * e + 3 * e, 2 * e], rel=1e-5)
    assert stopped == pytest.approx([3 * e, 2 * e], rel=1e-5)
    w.need_grad = False
    assert gradients() == pytest.approx([3 * e, 0.0], rel=1e-5)
    assert len(emissions) == 3


def test_gradients_accumulate() -> None:
    x = vector(2.0)
    y = x * x
    for count in (1, 2, 3):
        y.forward()
        y.backward()
        assert x.g == 4 * count
    x.grad.zero()
    y.backward()
    assert x.g == 4
    x.g = 10.0
    y.backward()
    assert x.g == 14


def test_backward_with_or_without_forward_before_it_uses_one_snapshot() -> None:
    x = vector(2.0)
    y = x * x
    y.forward()
    x.d = 5.0
    y.backward()
    assert x.g == 4
    assert y.d == 4
    x = vector(2.0)
    y = x * x
    y.backward()
    assert (x.g, y.d) == (4, 4)
    x = vector(2.0)
    h = x * x
    y = h * 3
    y.forward()
    x.d = 7.0
    h.backward()
    assert x.g == 4


@pytest.mark.parametrize("seed", [
    3, 3.0, np.float32(3), np.full(2, 3.0), np.full(2, 3, np.int32), jnp.full(2, 3.0),
    nn.NdArray.from_numpy_array([3.0, 3.0]), Variable.from_numpy_array([3.0, 3.0]), [3.0, 3.0],
], ids=["int", "float", "float32", "array", "int array", "JAX", "NdArray", "Variable", "list"])
def test_forms_of_the_seed(seed: Any) -> None:
    x = vector(2.0, 4.0)
    y = x * x
    y.backward(seed)
    assert x.g.tolist() == [12, 24]


def test_seeds_are_taken_from_grad_and_compiled_once() -> None:
    x = vector(2.0, 4.0)
    y = x * x
    y.g = [1.0, 10.0]
    y.backward(None)
    assert x.g.tolist() == [4, 80]
    x = vector(2.0)
    y = x * x * 1.1875
    y.backward(2.0)
    misses = nn.executables.info().misses
    for seed in (3.0, 4.0, np.float32([5.0])):
        y.backward(seed)
    assert nn.executables.info().misses == misses
    assert x.g == pytest.approx(1.1875 * 4 * 14)


def test_backward_reaches_only_what_needs_it() -> None:
    x, w = vector(2.0, need_grad=False), vector(3.0)
    (x * w).backward()
    assert (x.g, w.g) == (0, 2)
    y = x * 2
    with pytest.warns(UserWarning, match="backward: no leaf needs a gradient"):
        y.backward()
    assert not y.need_grad and x.g == 0
    x = vector(2.0)
    y = x * x
    y.backward()
    assert x.g == 4
    y.need_grad = False
    with pytest.warns(UserWarning, match="backward: no leaf needs a gradient"):
        y.backward()
    assert x.g == 4


# ---------------------------------------------------------------- effects


def test_an_effect_is_applied_once_per_forward_with_hooks_or_without() -> None:
    counter, x = vector(0.0, need_grad=False), vector(2.0)
    y = with_updates(x * 3, {counter: counter + x})
    y.forward()
    assert (y.d, counter.d, y.d) == (6, 2, 6)
    y.forward()
    y.backward()
    y.backward()
    assert (counter.d, x.g) == (4, 6)
    y.forward()
    y.forward()
    assert counter.d == 8
    assert counter.d == 8
    counter, x = vector(0.0, need_grad=False), vector(2.0)
    y = with_updates(x * 3, {counter: counter + x})
    y.forward(function_pre_hook=lambda f: None)
    assert (y.d, counter.d) == (6, 2)


def test_a_compiled_function_applies_effects_and_to_jax_leaves_them_out() -> None:
    counter, w, x = vector(0.0, need_grad=False), vector(2.0), vector(0.0)
    y = with_updates(x * w, {counter: counter + x})
    run = nn.compile(y, [x])
    assert run(np.float32([3.0])) == 6
    w.d = 10.0
    assert run([4.0]) == 40
    assert counter.d == 7
    assert x.d == 0
    counter, x = vector(0.0, need_grad=False), vector(2.0)
    run = nn.to_jax(with_updates(x * 3, {counter: counter + x}), [x])
    assert run(np.float32([3.0])) == 9
    assert counter.d == 0


# ---------------------------------------------------------------- switches


def test_auto_forward() -> None:
    x = vector(0.5)
    assert not nn.get_auto_forward()
    with nn.auto_forward():
        assert nn.get_auto_forward()
        y = F.exp(x)
        z = y * 2
        x.d = 1.0
        assert z.d == pytest.approx(2 * np.exp(0.5), rel=1e-6)
        x.d = 0.5
        z.backward()
        (gx,) = nn.grad(z, x)
    assert not nn.get_auto_forward()
    assert x.g == gx.d == pytest.approx(2 * np.exp(0.5), rel=1e-6)
    with nn.auto_forward(), nn.auto_forward(False):
        y = F.exp(x)
    x.d = 3.0
    assert y.d == pytest.approx(np.exp(3.0), rel=1e-6)


def test_no_grad() -> None:
    x = vector(2.0)
    with nn.no_grad():
        h = x * x
        with nn.no_grad(False):
            k = x * 3
    y = h * x + k
    assert not h.need_grad and k.need_grad
    y.backward()
    assert x.g == 4 + 3


# ---------------------------------------------------------------- JAX


def test_to_jax_under_jit_vmap_and_grad() -> None:
    x, w = vector(0.5, 0.25), vector(2.0, 3.0)
    y = F.sum(F.tanh(x * w))
    f = nn.to_jax(y, [x, w])
    a, b = jnp.array([0.1, 0.2]), jnp.array([0.3, 0.4])
    expected = jnp.sum(jnp.tanh(a * b))
    np.testing.assert_allclose(f(a, b), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(f)(a, b), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(f)(jnp.stack([a, a]), jnp.stack([b, b])), [expected] * 2, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(f)(a, b), (1 - jnp.tanh(a * b) ** 2) * b, rtol=1e-5)
    np.testing.assert_allclose(f(x, w), y.d, rtol=1e-6)
    (gx,) = nn.grad(y, x)
    np.testing.assert_allclose(nn.to_jax(gx, [x, w])(a, b), jax.grad(f)(a, b), rtol=1e-5)


# ---------------------------------------------------------------- the cache


def test_structures_that_differ_do_not_share() -> None:
    x = vector(1.0, 2.0)
    assert (x * 2).d.tolist() == [2, 4]
    assert (x * 3).d.tolist() == [3, 6]
    assert (x - 2 * x).d.tolist() == [-1, -2]
    assert (2 * x - x).d.tolist() == [1, 2]
    i = Variable.from_numpy_array(np.array([1, 2], np.int32))
    assert (i * 2).dtype == np.int32 and (i * 2).d.tolist() == [2, 4]
    nan, inf = x * float("nan"), x * float("inf")
    assert np.isnan(nan.d).all() and np.isinf(inf.d).all()
    assert np.isnan((x * (float("inf") - float("inf"))).d).all()
    for zero in (0.0, -0.0):
        for y in (x * zero, zero / x):
            assert y.d.tolist() == [0, 0] and (np.signbit(y.d) == np.signbit(zero)).all()


def test_errors_of_python_functions() -> None:
    class Wrong(nn.CustomFunction):
        outputs = 2

        def forward(self, x: Any) -> Any:
            return x

    class Bare(nn.CustomFunction):
        pass

    class OneWay(nn.CustomFunction):
        def forward(self, x: Any) -> Any:
            return x

    x = vector(1.0)
    with pytest.raises(ValueError, match="outputs = 2"):
        Wrong()(x)
    with pytest.raises(NotImplementedError, match="Bare has no forward"):
        Bare()(x)
    with pytest.raises(TypeError, match="is a base class"):
        nn.CustomFunction()(x)
    with pytest.raises(TypeError, match=r"inputs\[1\]"):
        OneWay()(x, None)
    with pytest.raises(NotImplementedError, match="OneWay"):
        nn.grad(OneWay()(x), x)
    listed = OneWay()
    listed.weights = [1, 2]  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"OneWay\(weights=\[1, 2\]\): attributes must be hashable"):
        listed(x)


# ---------------------------------------------------------------- contexts


ON_THE_SECOND = """
import jax, numpy as np, nngrad as nn, nngrad.functions as F
x = nn.Variable.from_numpy_array(np.array([0.5, 2.0]), need_grad=True)
for device in ("cpu:1", jax.devices()[1]):
    with nn.device(device):
        y = F.sum(F.tanh(x) ** 2)
    (gx,) = nn.grad(y, x)
    (ggx,) = nn.grad(gx, x)
    for value in (y, gx, ggx):
        value.forward()
        print(*[place.id for place in value.data.array.devices()], *np.ravel(value.d).tolist())
print(nn.device("cpu:1")(nn.get_current_context)().device_id, nn.get_current_context().device_id)
"""


def test_gradients_run_on_the_device_of_their_graph() -> None:
    *computed, contexts = printed_by(2, ("-c", ON_THE_SECOND))[0]
    t = np.tanh([0.5, 2.0])
    expected = [(t * t).sum(), 2 * t * (1 - t * t), 2 * (1 - t * t) * (1 - 3 * t * t)] * 2
    for line, values in zip(computed, expected, strict=True):
        device, *found = map(float, line.split())
        assert device == 1
        np.testing.assert_allclose(found, np.ravel(values), rtol=1e-12)
    assert contexts == "1 0"


# ---------------------------------------------------------------- dtypes


def test_float64_without_switching_it_on_for_all() -> None:
    assert not jax.config.jax_enable_x64
    x = vector(1 / 3, dtype=np.float64)
    y = F.exp(x) * 3 + 1 / 7
    assert y.dtype == y.d.dtype == np.float64
    assert y.d == pytest.approx(3 * np.exp(1 / 3) + 1 / 7, rel=1e-15)
    y.backward()
    assert x.g.dtype == np.float64 and x.g == pytest.approx(3 * np.exp(1 / 3), rel=1e-15)
    y.backward(2.0)
    assert x.g == pytest.approx(9 * np.exp(1 / 3), rel=1e-15)
    (gx,) = nn.grad(y, x, grad_outputs=[np.full(1, 1 / 3)])
    assert gx.d == pytest.approx(np.exp(1 / 3), rel=1e-15)
    with nn.auto_forward():
        assert F.exp(x).d == pytest.approx(np.exp(1 / 3), rel=1e-15)
    seen: list[Any] = []
    y.forward(function_post_hook=seen.append)
    assert y.d == pytest.approx(3 * np.exp(1 / 3) + 1 / 7, rel=1e-15)
    f, run = nn.to_jax(y, [x]), nn.compile(y, [x])
    assert f([1 / 3]).dtype == run([1 / 3]).dtype == np.float64
    assert np.asarray(f([1 / 3])) == y.d == np.asarray(run([1 / 3]))
    assert jax.jit(f)(np.array([1 / 3])).dtype == np.float32
    assert f(np.array([1 / 3])).dtype == np.float64
    with jax.enable_x64(True):
        assert jax.jit(f)(np.array([1 / 3])).dtype == np.float64
    assert not jax.config.jax_enable_x64
    assert np.asarray(x * jnp.float32(2)).dtype == np.float64


def test_dtypes_are_mixed_and_int64_is_kept() -> None:
    half, single, double = (vector(1.5, dtype=t) for t in (np.float16, np.float32, np.float64))
    integer = Variable.from_numpy_array(np.array([2], np.int32))
    y = half * single + double * integer - half
    assert y.dtype == np.float64
    assert y.d == 1.5 * 1.5 + 3 - 1.5
    y.backward()
    assert [x.g.dtype for x in (half, single, double)] == [np.float16, np.float32, np.float64]
    assert [float(x.g[0]) for x in (half, single, double)] == [0.5, 1.5, 2.0]
    big = 2**40 + 1
    x = Variable.from_numpy_array(np.array([big], np.int64))
    assert (x + x).d.tolist() == [2 * big]
    assert F.identity(x).d.dtype == np.int64
