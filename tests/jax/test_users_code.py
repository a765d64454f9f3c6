"""Code of the user's that has changed: what it reads beside its inputs, its methods, what a class says of itself.
Values, gradients as graphs, and gradients added up are those of the code as it is then."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from backward_registry import registry
from nngrad.extend import Variable
from tests.exact import exactly
from tests.leaves import leaf
from tests.slow import slow_but_every

X = np.array([0.5, -1.25, 2.0])
LAM = 1.0
HELPER: Callable[[], float] = functools.partial(float, 1.0)
TABLE = np.ones(3)
LARGE = np.ones((3, 400))


# ---------------------------------------------------------------- where a number comes from


def _global() -> tuple[Any, Any]:
    def change(value: float) -> None:
        global LAM
        LAM = value

    return lambda self: LAM, change


def _class_attribute() -> tuple[Any, Any]:
    return lambda self: type(self).lam, lambda value: setattr(made["class"], "lam", value)


def _object() -> tuple[Any, Any]:
    cfg = SimpleNamespace(lam=1.0)
    made["attributes"] = {"cfg": _Hashable(cfg)}
    return lambda self: self.cfg.held.lam, lambda value: setattr(cfg, "lam", value)


def _closure() -> tuple[Any, Any]:
    lam = 1.0

    def change(value: float) -> None:
        nonlocal lam
        lam = value

    return lambda self: lam, change


def _default() -> tuple[Any, Any]:
    def number(self: Any, lam: float = 1.0) -> float:
        return lam

    return number, lambda value: setattr(number, "__defaults__", (value,))


def _partial() -> tuple[Any, Any]:
    def change(value: float) -> None:
        global HELPER
        HELPER = functools.partial(float, value)

    return lambda self: HELPER(), change


def _array() -> tuple[Any, Any]:
    return lambda self: TABLE, lambda value: TABLE.fill(value)


def _large_array() -> tuple[Any, Any]:
    return lambda self: LARGE.mean(axis=1), lambda value: LARGE.fill(value)


class _Hashable:
    """Hashed by identity, whatever it holds."""

    def __init__(self, held: Any) -> None:
        self.held = held


made: dict[str, Any] = {}
"""What the sources and the classes know of each other."""

SOURCES = [_global, _class_attribute, _object, _closure, _default, _partial, _array, _large_array]


# ---------------------------------------------------------------- lam x^2 in every protocol


def in_chainers(lam: Any, numpy: bool = False) -> type:
    class Scaled(nn.nnabla.FunctionNode):
        def forward(self, x: Any) -> Any:
            return x * x * lam(self)

        def backward(self, indexes: Any, grad_outputs: Any) -> Any:
            (x,), (gy,) = self.get_retained_inputs(), grad_outputs
            return (2 * x * gy * lam(self),)

    Scaled.numpy = numpy
    return Scaled


def in_chainers_on_the_host(lam: Any) -> type:
    return in_chainers(lam, numpy=True)


def as_a_rule(lam: Any) -> type:
    class Scaled(nn.nnabla.PythonFunction):
        def forward(self, x: Any) -> Any:
            return x * x * lam(self)

        def backward(self, f: Any, gy: Variable) -> Any:
            (x,) = f.inputs
            return 2 * x * gy * lam(self)

    return Scaled


def in_nnablas(lam: Any) -> type:
    class Scaled(nn.nnabla.PythonFunction):
        def setup_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].reset_shape(inputs[0].shape, True)

        def forward_impl(self, inputs: Any, outputs: Any) -> None:
            x = inputs[0].data
            outputs[0].data.copy_from(x * x * lam(self))

        def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
            inputs[0].grad.copy_from(2 * inputs[0].data * outputs[0].grad * lam(self))

    return Scaled


def in_nnablas_on_the_host(lam: Any) -> type:
    class Scaled(nn.nnabla.PythonFunction):
        def setup_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].reset_shape(inputs[0].shape, True)

        def forward_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].d = inputs[0].d ** 2 * lam(self)

        def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
            inputs[0].g = 2 * inputs[0].d * outputs[0].g * lam(self)

    return Scaled


def with_a_gradient(lam: Any) -> Any:
    class Scaled:
        lam: ClassVar[float]

        def __call__(self, x: Any) -> Any:
            return nn.custom_gradient(lambda v: (v * v * lam(self), lambda gy: 2 * v * gy * lam(self)))(x)

    return Scaled


PROTOCOLS = [
    in_chainers, in_chainers_on_the_host, as_a_rule, in_nnablas, in_nnablas_on_the_host, with_a_gradient,
]  # fmt: skip


def in_jax(wrap: Any, ruled: Any = None) -> Any:
    """The same as a JAX function that is wrapped once for each instance."""

    def protocol(lam: Any) -> Any:
        class Scaled:
            lam: ClassVar[float]

            def __init__(self) -> None:
                computed = functools.partial(lambda x: x * x * lam(self))
                self.wrapped = wrap(computed if ruled is None else ruled(computed, lambda x: 2 * x * lam(self)))

            def __call__(self, x: Any) -> Any:
                return self.wrapped(x)

        return Scaled

    return protocol


def _along(computed: Any, slope: Any) -> Any:
    f = jax.custom_jvp(lambda x: computed(x))
    f.defjvp(lambda primals, tangents: (f(*primals), slope(*primals) * tangents[0]))
    return f


def _back(computed: Any, slope: Any) -> Any:
    f = jax.custom_vjp(lambda x: computed(x))
    f.defvjp(lambda x: (f(x), x), lambda x, gy: (slope(x) * gy,))
    return lambda x: f(x)


JAX_PROTOCOLS = {
    "jax_function": in_jax(F.jax_function), "from_jax": in_jax(nn.from_jax),
    "custom_jvp": in_jax(F.jax_function, _along), "custom_vjp": in_jax(F.jax_function, _back),
    "custom_vjp from_jax": in_jax(nn.from_jax, _back),
}  # fmt: skip
"""`F.jax_function` and `nn.from_jax`, whose derivatives are JAX's, or rules that read what the function reads."""


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Each test begins with ones."""
    global LAM, HELPER
    made.clear()
    LAM, HELPER = 1.0, functools.partial(float, 1.0)
    TABLE.fill(1.0)
    LARGE.fill(1.0)
    yield


def an_instance(cls: Any) -> Any:
    f = cls()
    for name, value in made.get("attributes", {}).items():
        setattr(f, name, value)
    return f


def check(f: Any, lam: float, back: float | None = None, again: bool = True) -> None:
    """All that there is to a graph that is built now: `f` is lam x^2, and its gradient `back` 2 x."""
    back = lam if back is None else back
    x = leaf(X)
    y = f(x)
    loss = F.sum(F.sin(y))
    slope = np.cos(lam * X**2) * back * 2 * X
    (gx,) = nn.grad(loss, [x])
    np.testing.assert_allclose(gx.d, slope, rtol=1e-12)
    loss.forward()
    loss.backward()
    np.testing.assert_allclose(x.g, slope, rtol=1e-12)
    np.testing.assert_allclose(y.d, lam * X**2, rtol=1e-12)
    op_by_op = leaf(X)
    loss = F.sum(F.sin(f(op_by_op)))
    loss.forward(function_post_hook=lambda each: None)
    loss.backward(function_post_hook=lambda each: None)
    np.testing.assert_allclose(op_by_op.g, slope, rtol=1e-12)
    with nn.auto_forward():
        np.testing.assert_allclose(f(leaf(X)).d, lam * X**2, rtol=1e-12)
    if again:  # the gradient of the gradient
        (ggx,) = nn.grad(F.sum(nn.grad(F.sum(f(x)), [x])[0] * 3), [x])
        np.testing.assert_allclose(ggx.d, np.full(3, back * 6), rtol=1e-12)


@pytest.mark.parametrize(("protocol", "source"), [
    pytest.param(protocol, source, marks=() if (i + j) % 4 == 1 else pytest.mark.slow)
    for i, protocol in enumerate(PROTOCOLS) for j, source in enumerate(SOURCES)
] + [
    pytest.param(protocol, source, marks=() if i == j else pytest.mark.slow, id=f"{name}-{source.__name__}")
    for i, (name, protocol) in enumerate(JAX_PROTOCOLS.items()) for j, source in enumerate(SOURCES)
])  # fmt: skip
def test_what_the_code_reads_is_as_it_is(protocol: Any, source: Any) -> None:
    lam, change = source()
    made["class"] = protocol(lam)
    made["class"].lam = 1.0
    f, again = an_instance(made["class"]), protocol is not in_nnablas_on_the_host
    for value in (1.0, 3.0, 3.0, -0.5, 1.0):
        change(value)
        check(f, value, again=again)
        check(an_instance(made["class"]), value, again=again)


@pytest.mark.parametrize("protocol", [
    *slow_but_every(3, [in_chainers, as_a_rule, in_nnablas, with_a_gradient]),
    *[pytest.param(JAX_PROTOCOLS[name], marks=pytest.mark.slow, id=name) for name in ("custom_jvp", "from_jax")],
])  # fmt: skip
def test_in_the_bodies_of_loops_and_branches(protocol: Any) -> None:
    lam, change = _closure()
    made["class"] = protocol(lam)
    f = made["class"]()
    for value in (1.0, 3.0, 0.25):
        change(value)
        x = leaf(X)
        _, ys = F.scan(lambda h, s: (F.sin(f(h)), h + s), x, np.zeros((4, 3)))
        expected = _scanned(value)
        np.testing.assert_allclose(ys.d, expected(X), rtol=1e-12)
        weights = np.arange(12.0).reshape(4, 3)
        (gx,) = nn.grad(F.sum(ys * weights), [x])
        (ggx,) = nn.grad(F.sum(gx**2), [x])
        loss = F.sum(ys * weights)
        loss.forward()
        loss.backward()
        slope = jax.grad(lambda v, f=expected, weights=weights: jnp.sum(f(v) * weights))
        once, twice = exactly(lambda v, g=slope: (g(v), jax.grad(lambda v: jnp.sum(g(v) ** 2))(v)), X)
        np.testing.assert_allclose(gx.d, once, rtol=1e-9)
        np.testing.assert_allclose(x.g, once, rtol=1e-9)
        np.testing.assert_allclose(ggx.d, twice, rtol=1e-9)
        branch = F.cond(F.sum(x) > 0, lambda v: f(v), lambda v: v, x)
        np.testing.assert_allclose(nn.grad(F.sum(branch), [x])[0].d, 2 * value * X, rtol=1e-12)


def _scanned(lam: float) -> Any:
    def expected(x: Any) -> Any:
        with jax.enable_x64(True):
            each = [x]
            for _ in range(3):
                each.append(jnp.sin(lam * each[-1] ** 2))
            return jnp.stack(each)

    return expected


# ---------------------------------------------------------------- a graph that is there already


class Reversal(nn.nnabla.PythonFunction):
    """The identity, with a gradient that is turned round."""

    exact = False
    lam: ClassVar[float] = 1.0

    def forward(self, x: Any) -> Any:
        return x

    def backward(self, f: Any, gy: Variable) -> Any:
        return gy * -self.lam


def test_a_backward_reads_what_there_is_when_the_gradient_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in nnabla's static graphs: the strength of a reversal follows a schedule."""
    x = leaf(X)
    loss = F.sum(Reversal()(x * 2))
    for lam in (1.0, 0.25, 1.0, 4.0):
        monkeypatch.setattr(Reversal, "lam", lam)
        x.grad.zero()
        loss.forward()
        loss.backward()
        np.testing.assert_allclose(x.g, np.full(3, -2 * lam))
        np.testing.assert_allclose(nn.grad(loss, [x])[0].d, x.g)


class Held(nn.nnabla.FunctionNode):
    """An attribute of the instance, in both directions."""

    def __init__(self, lam: float) -> None:
        self.lam = lam

    def forward(self, x: Any) -> Any:
        return x * self.lam

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        return (grad_outputs[0] * self.lam,)


def test_attributes_and_values_are_those_of_the_application() -> None:
    x, f = leaf(X), Held(2.0)
    y = f(x)
    f.lam = 5.0
    np.testing.assert_array_equal(nn.grad(y, [x])[0].d, np.full(3, 2.0))
    loss = F.sum(y)
    loss.forward()
    loss.backward()
    np.testing.assert_array_equal(x.g, np.full(3, 2.0))
    np.testing.assert_array_equal(y.d, 2 * X)
    np.testing.assert_array_equal(nn.grad(f(x), [x])[0].d, np.full(3, 5.0))
    lam, change = _closure()
    f = in_chainers(lam)()
    x = leaf(X)
    y = f(x)
    change(3.0)
    np.testing.assert_allclose(y.d, X**2)
    np.testing.assert_allclose(f(x).d, 3 * X**2)
    y.forward()
    np.testing.assert_allclose(y.d, X**2)


@dataclasses.dataclass(unsafe_hash=True)
class Named:
    """Its equality leaves out what is read."""

    name: str
    lam: float = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Compared by value."""

    lam: float
    beside: tuple[str, Any] = ("a", np.dtype(np.float32))


@pytest.mark.parametrize("protocol", [
    in_chainers_on_the_host, in_nnablas_on_the_host,
    *[pytest.param(each, marks=pytest.mark.slow) for each in (in_chainers, as_a_rule)],
])  # fmt: skip
def test_attributes_that_are_equal_by_their_own_equality(protocol: Any) -> None:
    cls = protocol(lambda self: self.given.lam)
    for kind in (functools.partial(Named, "a"), Fixed):
        for value in (1.0, 3.0, 1.0):
            f = cls()
            f.given = kind(lam=value)
            check(f, value, again=protocol is not in_nnablas_on_the_host)
    expected = f(leaf(X)).d
    misses = nn.executables.info().misses
    again = cls()
    again.given = Fixed(1.0)
    np.testing.assert_array_equal(again(leaf(X)).d, expected)
    assert nn.executables.info().misses == misses


def test_a_rule_of_jaxs_protocol_that_changes_before_it_is_needed() -> None:
    """What is compiled with it then would be found again for what was applied before."""
    lam, change = _closure()
    f = F.jax_function(_back(lambda x: x * x, lambda x: 2 * x * lam(None)))
    x = leaf(X)
    (gx,) = nn.grad(f(x), [x])
    change(3.0)
    with pytest.raises(RuntimeError, match=r"custom_vjp rule has changed .* Call the function again"):
        _ = gx.d
    for value in (3.0, 1.0, 3.0):
        change(value)
        np.testing.assert_allclose(nn.grad(f(x), [x])[0].d, value * 2 * X)
    change(1.0)
    np.testing.assert_allclose(gx.d, 2 * X)


# ---------------------------------------------------------------- the drop-in transformations


def _sum_of_squares(lam: Any) -> Any:
    return lambda x: jnp.sum(x * x * lam(None))


DROP_IN: dict[str, tuple[Callable[[Any], Any], Callable[[float], Any]]] = {
    "grad": (lambda f: nj.grad(f)(X), lambda lam: 2 * lam * X),
    "an inner one": (lambda f: nj.grad(lambda x: jnp.sum(nj.grad(f)(x) ** 2))(X), lambda lam: 8 * lam**2 * X),
    "an inner one made anew":
        (lambda f: made.setdefault("outer", nj.grad(lambda x: jnp.sum(nj.grad(lambda y: f(y * x))(x))))(X),
         lambda lam: 6 * lam * X**2),
    "hvp": (lambda f: nj.hvp(f, (X,), (X,))[0], lambda lam: 2 * lam * X),
    "mapped": (lambda f: jax.vmap(nj.grad(f))(X[None])[0], lambda lam: 2 * lam * X),
    "differentiated": (lambda f: jax.grad(lambda x: jnp.sum(nj.grad(f)(x) ** 2))(X), lambda lam: 8 * lam**2 * X),
    "an argument that is no array":
        (lambda f: nj.grad(lambda x, given: f(x) * given.lam / f(np.eye(3)[0]))(X, Named("a", float(f(np.eye(3)[0])))),
         lambda lam: 2 * lam * X),
    "of Variables": (lambda f: nj.grad(f)(leaf(X)).d, lambda lam: 2 * lam * X),
}  # fmt: skip


@pytest.mark.parametrize("form", slow_but_every(3, DROP_IN))
def test_drop_in_transformations_without_jit(form: str) -> None:
    """As in JAX; under `jax.jit` they are traced once."""
    compute, expected = DROP_IN[form]
    lam, change = _closure()
    f = _sum_of_squares(lam)
    with jax.enable_x64(True):
        for value in (1.0, 3.0, 1.0):
            change(value)
            np.testing.assert_allclose(compute(f), expected(value), rtol=1e-12)
        staged = jax.jit(lambda: compute(f)) if form == "grad" else None
        for value in (1.0, 3.0) if staged is not None else ():
            change(value)
            np.testing.assert_allclose(staged(), expected(1.0), rtol=1e-12)


# ---------------------------------------------------------------- methods


def _tripled(self: Any, x: Any) -> Any:
    return x * x * 3.0


def _tripled_back(self: Any, indexes: Any, grad_outputs: Any) -> Any:
    return (6.0 * self.inputs[0] * grad_outputs[0],)


def plain() -> Any:
    """x^2"""

    class Squared(nn.nnabla.FunctionNode):
        def forward(self, x: Any) -> Any:
            return x * x * 1.0

        def backward(self, indexes: Any, grad_outputs: Any) -> Any:
            return (2.0 * self.inputs[0] * grad_outputs[0],)

    return Squared


def test_methods_and_code_that_are_replaced() -> None:
    cls = plain()
    f = cls()
    check(f, 1.0)
    cls.forward = _tripled
    check(f, 3.0, back=1.0)
    cls.backward = _tripled_back
    check(f, 3.0)
    check(cls(), 3.0)
    cls = plain()
    f = cls()
    check(f, 1.0)
    cls.forward.__code__ = _tripled.__code__
    check(f, 3.0, back=1.0)
    cls.backward.__code__ = _tripled_back.__code__
    check(f, 3.0)


def test_a_rule_that_was_registered_stays() -> None:
    cls = plain()
    cls.__name__ = "RegisteredSquare"
    cls.exact = False
    cls()(leaf(X))
    nn.register("RegisteredSquare", lambda gys, inputs, *_: [gys[0] * inputs[0] * 2 * LAM])
    cls.rows = (0,)
    global LAM
    for LAM in (1.0, 7.0):
        check(cls(), 1.0, back=LAM)


# ---------------------------------------------------------------- rules of the user's for functions of nngrad's


def _sum_of_cosines(x: Any) -> Any:
    return jnp.sum(jnp.cos(x))


def test_a_registered_rule_reads_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    global LAM
    before = registry["Cos"]
    nn.register("Cos", lambda gys, inputs, *_: [gys[0] * -F.sin(inputs[0]) * LAM])
    try:
        for LAM in (1.0, 2.0, 2.0, 0.5):
            slope = -LAM * np.sin(X)
            x = leaf(X)
            y = F.cos(x)
            for _ in range(3):
                np.testing.assert_allclose(nn.grad(F.sum(y * 1.0) * 1.0 + 0.0, [x])[0].d, slope)
            loss = F.sum(y)
            loss.forward()
            loss.backward()
            np.testing.assert_allclose(x.g, slope)
            _, ys = F.scan(lambda h, s: (h, F.cos(h) * s), x, np.array([1.0, 2.0]))
            for _ in range(3):
                np.testing.assert_allclose(nn.grad(F.sum(ys), [x])[0].d, 3 * slope)
            with jax.enable_x64(True):
                np.testing.assert_allclose(nj.grad(_sum_of_cosines)(X), slope)
    finally:
        registry.add(registry.op("Cos"), before, replace=True)


# ---------------------------------------------------------------- functions of Variables


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.scan(lambda h, s: (h, h * h * LAM * s), x, np.ones(1))[1],
        lambda x: F.cond(F.sum(x) > 0, lambda v: v * v * LAM, lambda v: v, x),
        lambda x: F.while_loop(lambda c: c[1] < 1, lambda c: (c[0] * c[0] * LAM, c[1] + 1), (x, np.float64(0)))[0],
        lambda x: nn.checkpoint(lambda v: v * v * LAM)(x),
        lambda x: nn.vmap(lambda v: v * v * LAM)(x),
    ],
    ids=["scan", "cond", "while_loop", "checkpoint", "vmap"],
)
def test_functions_of_variables_run_in_each_call(call: Any) -> None:
    global LAM
    for LAM in (1.0, 3.0, 0.5):
        x = leaf(X)
        y = call(x)
        np.testing.assert_allclose(np.ravel(y.d), LAM * X**2, rtol=1e-12)


def test_what_is_traced_once_on_purpose() -> None:
    """JAX functions under `jax.jit`, and a graph that is compiled as a whole."""
    lam, change = _closure()

    def scaled(x: Any) -> Any:
        return x * lam(None)

    wrapped, x = F.jax_function(jax.jit(scaled)), leaf(X)
    step = nn.compile(Reversal()(in_chainers(lam)()(x)), x)
    for value in (1.0, 3.0):
        change(value)
        np.testing.assert_allclose(wrapped(x).d, X)
        np.testing.assert_allclose(step(X), X**2)
        np.testing.assert_allclose(jax.jit(scaled)(X), X, rtol=1e-6)
    np.testing.assert_allclose(F.jax_function(scaled)(x).d, 3 * X)


def test_a_rule_that_calls_its_function_again_is_read_once() -> None:
    """As that of an ODE solver, which solves another equation backwards."""
    read: list[int] = []

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def power(n: int, x: jax.Array) -> jax.Array:
        return x**n

    def forward(n: int, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return power(n, x), x

    def backward(n: int, x: jax.Array, g: jax.Array) -> tuple[jax.Array]:
        read.append(n)
        return (g * n * power(n - 1, x),)

    power.defvjp(forward, backward)
    x = Variable.from_numpy_array(2.0, need_grad=True)
    y = F.jax_function(functools.partial(power, 9))(x)
    assert read == [9]
    (g,) = nn.grad(y, x)
    (h,) = nn.grad(g, x)
    assert (float(g.d), float(h.d)) == (9 * 2.0**8, 72 * 2.0**7)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def sine_until(order: int, x: jax.Array) -> jax.Array:
    """sin(x), whose derivatives are sin(x) up to this order, and 0 after it."""
    return jnp.sin(x)


@sine_until.defjvp
def sine_until_jvp(order: int, primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return sine_until(order, x), t * (sine_until(order - 1, x) if order else 0 * x)


def test_a_rule_that_calls_itself_with_other_numbers_is_told_apart() -> None:
    """Values, and first derivatives up to what they call, are equal for all orders but 0."""
    for order in (6, 1, 0, 2, 1):
        for k in range(4):
            by_nngrad, by_jax = functools.partial(sine_until, order), functools.partial(sine_until, order)
            for _ in range(k):
                by_nngrad, by_jax = nj.grad(by_nngrad), jax.grad(by_jax)
            expected = np.sin(0.3) if k <= order else 0.0
            np.testing.assert_allclose(by_nngrad(0.3), expected, rtol=1e-6)
            np.testing.assert_allclose(by_jax(0.3), expected, rtol=1e-6)
            x = nn.Variable.from_numpy_array(np.float32(0.3), need_grad=True)
            y = F.jax_function(functools.partial(sine_until, order))(x)
            for _ in range(k):
                (y,) = nn.grad(y, x)
            np.testing.assert_allclose(y.d, expected, rtol=1e-6)


def test_a_jvp_that_calls_its_function_again_is_read_once_at_each_order() -> None:
    read: list[int] = []

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def power(n: int, x: jax.Array) -> jax.Array:
        return x**n

    @power.defjvp
    def power_jvp(n: int, primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        read.append(n)
        return power(n, x), n * power(n - 1, x) * t

    slope = nj.grad(lambda a: nj.grad(lambda x: power(9, a * x))(2.0))
    np.testing.assert_allclose(jax.jit(slope)(1.0), 81 * 2.0**8, rtol=1e-6)
    assert set(read) <= {9, 8, 7}
