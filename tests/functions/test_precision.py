"""nn.precision: what functions compute in, each op by itself; and training in 16 bits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad import Variable
from nngrad.graph import Op
from nngrad.parameter import clear_parameters, get_parameter, get_parameters
from tests.oracle import as_tuple, is_floating
from tests.samples import Sample, all_samples

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _empty() -> None:
    clear_parameters()
    nn.seed(1)


def first_samples() -> dict[str, Sample]:
    """One sample for each op that floating arrays are given to."""
    found: dict[str, Sample] = {}
    for sample in all_samples():
        if isinstance(getattr(F, sample.name), Op) and any(map(is_floating, arrays_of(sample))):
            found.setdefault(sample.name, sample)
    return found


def arrays_of(sample: Sample) -> list[Any]:
    rng = np.random.default_rng(7)
    return [np.asarray(draw(rng)) for draw in sample.inputs]


def variables_of(sample: Sample, dtype: str) -> list[Variable]:
    return [Variable.from_numpy_array(a, dtype=dtype if is_floating(a) else None) for a in arrays_of(sample)]


SAMPLES = first_samples()
DECLARED = [name for name in SAMPLES if getattr(F, name).precision]
EXPECTED = {  # for each declaration and dtype of the inputs: what it computes in, and what it gives
    ("low", "float32"): ("bfloat16", "bfloat16"), ("low", "bfloat16"): ("bfloat16", "bfloat16"),
    ("high", "float32"): ("float32", "float32"), ("high", "bfloat16"): ("float32", "float32"),
    ("inside", "float32"): ("float32", "float32"), ("inside", "bfloat16"): ("float32", "bfloat16"),
}  # fmt: skip


def test_what_is_declared_is_done() -> None:
    for name, dtype in itertools.product(DECLARED, ("float32", "bfloat16")):
        sample, each = SAMPLES[name], getattr(F, name)
        inside, outside = EXPECTED[each.precision, dtype]
        given = variables_of(sample, dtype)
        with nn.precision("bfloat16"):
            outputs = as_tuple(each(*given, **sample.arguments))
        f = outputs[0].parent
        if each.precision == "inside" and dtype == "bfloat16":
            f = f.inputs[0].parent
        assert f.op is each, name
        for spec, expected in [*[(x.spec, inside) for x in f.inputs], *[(y.spec, outside) for y in outputs]]:
            assert not spec.differentiable or spec.dtype.name == expected, name


def test_all_others_compute_in_what_comes_in() -> None:
    for name, sample in SAMPLES.items():
        if name in DECLARED or name == "cast":
            continue
        for dtype in ("float32", "bfloat16"):
            plain = as_tuple(getattr(F, name)(*variables_of(sample, dtype), **sample.arguments))
            with nn.precision("bfloat16"):
                found = as_tuple(getattr(F, name)(*variables_of(sample, dtype), **sample.arguments))
            assert [y.spec for y in found] == [y.spec for y in plain], name
            assert all(y.parent.op is x.parent.op for x, y in zip(found, plain, strict=True)), name


def test_float64_is_never_changed() -> None:
    for name in DECLARED:
        with nn.precision("bfloat16"):
            outputs = as_tuple(getattr(F, name)(*variables_of(SAMPLES[name], "float64"), **SAMPLES[name].arguments))
        assert all(y.dtype == np.float64 for y in outputs if y.spec.differentiable), name


NEITHER = {
    "of_bod": "it computes in what its bodies compute in",
    "factors_of_body": "of a matrix that a body computes",
    "_solve": "by a matrix that a body computes",
    "jax_": "a derivative of a function of the user's",
    "box_averages": "samples between pixels, of which few are summed",
    "weighted_points": "samples between pixels, of which few are summed",
}
"""Heavy ops without a declaration, by parts of their names, each with the reason."""


# ---------------------------------------------------------------- whole graphs


def critic(x: Variable) -> Variable:
    h = F.tanh(PF.layer_normalization(PF.affine(x, 16, name="one"), batch_axis=0))
    return PF.affine(h, 1, name="two")


def loss_of(x: Variable) -> Variable:
    """A critic's loss with a gradient penalty, so that parameters get second-order gradients."""
    x.need_grad = True
    y = critic(x)
    (gx,) = nn.grad([F.sum(y)], [x])
    return F.mean(y**2.0) + F.mean((F.sum(gx**2.0, axis=1) ** 0.5 - 1.0) ** 2.0)


def test_dtypes_within_a_graph() -> None:
    x = Variable.from_numpy_array(X, need_grad=True)
    bias = Variable.from_numpy_array(np.ones(16, np.float32), need_grad=True)
    with nn.precision("bfloat16"):
        h = PF.affine(x, 16)
        assert h.dtype == bfloat16 and (h + bias).dtype == bfloat16 and (h * 2.0 + 1.0).dtype == bfloat16
        assert (h + F.reshape(bias, (1, 16))).dtype == bfloat16
        assert F.concatenate(h, F.broadcast(F.reshape(bias, (1, 16)), (16, 16))).dtype == bfloat16
        assert PF.batch_normalization(h).dtype == bfloat16 and F.dropout(h).dtype == bfloat16
        assert F.softmax(h).dtype == bfloat16
        loss = F.mean(h)
        assert loss.dtype == (loss * 2.0).dtype == (loss + h[0, 0]).dtype == np.float32
        with nn.precision("float32"):
            assert F.affine(x, get_parameter("affine/W")).dtype == np.float32
        assert F.affine(x, get_parameter("affine/W")).dtype == bfloat16
    assert F.affine(x, get_parameter("affine/W")).dtype == np.float32
    assert all(p.dtype == np.float32 for p in get_parameters(grad_only=False).values())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("simplified", [True, False])
def test_second_order_gradients_are_near_those_in_float32(dtype: str, simplified: bool) -> None:
    with nn.simplify(simplified):
        x = Variable.from_numpy_array(X)
        exact = loss_of(x)
        parameters = list(get_parameters().values())
        expected = nn.grad([exact], parameters)
        with nn.precision(dtype):
            loss = loss_of(Variable.from_numpy_array(X))
            found = nn.grad([loss], parameters)
    nn.forward_all([exact, loss, *expected, *found])
    assert abs(float(loss.d) - float(exact.d)) < 0.02 * float(exact.d)
    assert loss.d != exact.d
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == np.float32
        assert np.linalg.norm(a.d - b.d) < 0.05 * max(np.linalg.norm(b.d), 0.1)


def test_float16_without_a_loss_scale_is_told() -> None:
    x = Variable((16, 3))
    with nn.precision("float16"):
        loss = F.mean(PF.affine(x, 2) ** 2.0)
    with pytest.warns(UserWarning, match=r"computes in float16.*loss_scaling\(nn.DynamicLossScale\(\)\)") as caught:
        nn.train_step(loss, get_parameters(), S.Sgd(0.1), inputs=x)
    assert [w.filename for w in caught] == [__file__]


def test_bodies_keep_the_dtypes_of_what_they_carry() -> None:
    w = Variable.from_numpy_array(np.eye(3), need_grad=True, dtype="float32")
    xs = Variable.from_numpy_array(RNG.standard_normal((4, 16, 3)).astype(np.float32))
    with nn.precision("bfloat16"):
        carry, ys = F.scan(lambda h, x: (F.tanh(F.affine(h, w) + x),) * 2, Variable((16, 3)), xs)
        either = F.cond(F.sum(xs) > 0.0, lambda x: F.affine(x, w), lambda x: x, xs[0])
        last = F.while_loop(lambda n: F.sum(n) < 100.0, lambda n: F.affine(n, w) * 2.0 + 1.0, xs[1], bound=9)
        loss = F.mean(carry) + F.mean(ys) + F.mean(either) + F.mean(last)
        (g,) = nn.grad([loss], [w])
    assert carry.dtype == either.dtype == last.dtype == g.dtype == np.float32
    assert ys.dtype == bfloat16 and np.isfinite(g.d).all()


def test_it_reaches_into_bodies_but_not_into_iterations() -> None:
    x, w = (Variable.from_numpy_array(RNG.standard_normal((3, 3)).astype(np.float32), need_grad=True) for _ in "xw")
    with nn.precision("bfloat16"):
        product = nn.checkpoint(lambda x: F.affine(x, w))(x)
        rows = nn.vmap(lambda x: F.matmul(x, w))(F.reshape(x, (3, 1, 3)))
        own = nn.custom_gradient(lambda x, w: (F.affine(x, w), lambda g: (g, None)))(x, w)
        (g,) = nn.grad([F.sum(product) + F.sum(rows)], [w])
        half, _ = nn.fixed_point(lambda y: 0.3 * F.tanh(F.affine(y, w)) + x, x)
    assert product.dtype == rows.dtype == own.dtype == bfloat16
    assert g.dtype == half.dtype == np.float32
    np.testing.assert_allclose(half.d, 0.3 * np.tanh(half.d @ w.d) + x.d, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(g.d, 2 * np.outer(x.d.sum(0), np.ones(3)), rtol=0.02, atol=0.02)


def test_it_decorates_and_is_checked() -> None:
    x = Variable((4, 3))

    @nn.precision("float16")
    def build() -> Variable:
        return PF.affine(x, 2)

    assert build().dtype == np.float16 and PF.affine(x, 2).dtype == np.float32
    assert nn.precision(np.float32) is not None
    with pytest.raises(ValueError, match="must be 'bfloat16', 'float16' or 'float32', got 'half'"):
        nn.precision("half")
