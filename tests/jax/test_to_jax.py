"""Graphs as JAX functions: arguments and results in pytrees."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F

RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal((5, 3)), RNG.standard_normal((3, 2)), RNG.standard_normal(2)


class Layer(NamedTuple):
    w: Any
    b: Any


def leaf(array: np.ndarray) -> nn.Variable:
    return nn.Variable.from_numpy_array(array, need_grad=True)


def by_hand(layer: Layer, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ layer.w + layer.b) ** 2)


def graph() -> tuple[Layer, nn.Variable, nn.Variable]:
    layer, x = Layer(leaf(W), leaf(B)), leaf(X)
    return layer, x, F.mean(F.tanh(x @ layer.w + layer.b) ** 2)


def test_pytrees_in_and_out_under_jit_grad_and_vmap() -> None:
    layer, x, loss = graph()
    gradient = Layer(*nn.grad(loss, list(layer)))
    f = nn.to_jax({"loss": loss, "gradient": gradient, "none": None}, [layer, x])
    arrays = Layer(W, B)
    with jax.enable_x64(True):
        wanted, slope = jax.value_and_grad(by_hand)(arrays, X)
        for run in (f, jax.jit(f)):
            found = run(arrays, X)
            assert list(found) == ["gradient", "loss", "none"] and found["none"] is None
            assert isinstance(found["gradient"], Layer)
            np.testing.assert_allclose(found["loss"], wanted, rtol=1e-14)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), found["gradient"], slope)
        again = jax.grad(lambda each: f(each, X)["loss"])(jax.tree.map(jnp.asarray, arrays))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), again, slope)
        many = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), arrays)
        batched = jax.vmap(f, in_axes=(0, None))(many, X)
        np.testing.assert_allclose(batched["loss"], [by_hand(arrays, X), by_hand(Layer(2 * W, 2 * B), X)], rtol=1e-14)


def test_jax_differentiates_samples_again_and_again() -> None:
    """By the derivative of the distribution: a rejection has none. In loops JAX forgets rules of `custom_jvp`."""
    key, at = np.array([3, 5], np.uint32), np.array([0.6, 2.5])
    k = leaf(at)
    y = F.log_gamma_sample(key, k)
    f, expected = nn.to_jax(y, k), [y]
    for _ in range(2):
        expected += nn.grad(F.sum(F.sin(expected[-1])), [k])
    looped = nn.to_jax(y, k)

    def slope(function: Any) -> Any:
        return jax.grad(lambda a: jnp.sum(jnp.sin(function(a))))

    with jax.enable_x64(True):
        for order, wanted in enumerate(expected):
            np.testing.assert_allclose(f(at), wanted.d, rtol=1e-9, err_msg=f"order {order}")
            f = slope(f)
        tangents = jax.jit(jax.vmap(lambda a: jax.jvp(slope(looped), (a,), (jnp.ones(2),))[1]))(np.stack([at, at]))
        once = jax.jvp(slope(looped), (at,), (np.ones(2),))[1]
        np.testing.assert_allclose(tangents, np.stack([once, once]), rtol=1e-12)

        def steps(a: Any) -> Any:
            return jax.lax.scan(lambda c, _: (c + looped(a), None), a, length=2)[0]

        found = jax.grad(lambda a: jnp.sum(slope(steps)(a)))(at)
        wanted = jax.grad(lambda a: jnp.sum(slope(lambda a: a + 2 * looped(a))(a)))(at)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_keys_and_shapes_of_samples_are_mapped_by_jax() -> None:
    keys, at = np.array([[3, 5], [1, 2]], np.uint32), np.array([0.6, 2.5])
    key, k = nn.Variable.from_numpy_array(keys[0]), leaf(at)
    f = nn.to_jax(F.log_gamma_sample(key, k), [key, k])
    with jax.enable_x64(True):
        wanted = np.stack([f(each, at) for each in keys])
        np.testing.assert_array_equal(jax.vmap(f, (0, None))(keys, at), wanted)
        both = jax.vmap(jax.vmap(f, (None, 1)), (0, None))(keys, np.stack([at, at], axis=1))
        np.testing.assert_array_equal(both, np.stack([wanted, wanted], axis=1))


def test_one_pytree_is_one_argument_and_a_list_is_several() -> None:
    layer, x, loss = graph()
    wanted = pytest.approx(float(loss.d), rel=1e-14)
    one, (again,) = nn.to_jax((loss, [loss]), {"layer": layer, "x": x})({"x": X, "layer": Layer(W, B)})
    assert float(one) == float(again) == wanted
    (alone,) = nn.to_jax([loss], layer)(Layer(W, B))
    (several,) = nn.to_jax([loss], [*layer, x])(W, B.tolist(), X)
    assert float(alone) == wanted
    assert float(several) == pytest.approx(float(loss.d), rel=1e-6)
    tree = nn.to_jax(loss, [{"w": layer.w}, x])
    assert float(tree({"w": W.tolist()}, leaf(X))) == wanted, "lists of numbers are arrays where a Variable was"


def test_errors_name_the_argument_and_the_path() -> None:
    layer, x, loss = graph()
    f = nn.to_jax(loss, [{"layers": [layer]}, x])
    with pytest.raises(ValueError, match=r"^array 0\['layers'\]\[0\].b has shape \(3,\), but input 0\['layers'\]"):
        f({"layers": [Layer(W, np.ones(3))]}, X)
    with pytest.raises(TypeError, match=r"^argument 0: expected arrays in the structure \{'layers': \[.*got \{'layer'"):
        f({"layer": [Layer(W, B)]}, X)
    with pytest.raises(TypeError, match=r"^expected 2 arguments, one for each input, got 1"):
        f(X)
    with pytest.raises(TypeError, match=r"^inputs: expected a Variable, .* got 3\.0 as input 0\['w'\]"):
        nn.to_jax(loss, [{"w": 3.0}])
    with pytest.raises(TypeError, match=r"^outputs: expected a Variable .* got 3\.0 at \['loss'\]\[1\]"):
        nn.to_jax({"loss": [loss, 3.0]}, x)
    with pytest.raises(ValueError, match="inputs: the same Variable is given twice"):
        nn.to_jax(loss, [{"x": x}, x])
    whole = nn.to_jax(F.identity(nn.Variable((2,), dtype="int32")), [])
    assert whole().shape == (2,)


def test_random_functions_take_a_key() -> None:
    x = nn.Variable(X.shape)
    function = nn.to_jax(F.dropout(x, 0.5), x)
    with pytest.raises(ValueError, match="key"):
        function(X)
    assert (jax.jit(function)(X, key=jax.random.key(0)) == 0).any()
