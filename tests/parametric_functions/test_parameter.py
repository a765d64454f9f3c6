"""Parameters: scopes, the registry, initial values, files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nngrad import Variable
from nngrad.files.parameter_files import load_parameters, save_parameters
from nngrad.initializer import (
    ConstantInitializer,
    NormalInitializer,
    OrthogonalInitializer,
    RangeInitializer,
    UniformInitializer,
    UniformIntInitializer,
)
from nngrad.parameter import (
    clear_parameters,
    get_parameter,
    get_parameter_or_create,
    get_parameters,
    parameter_scope,
    pop_parameter,
    set_parameter,
)
from nngrad.random import seed


@pytest.fixture(autouse=True)
def _empty() -> None:
    clear_parameters()


# ---------------------------------------------------------------- scopes and registry


def test_names_follow_scopes() -> None:
    with parameter_scope("a"):
        w = get_parameter_or_create("W", (2,))
        with parameter_scope("b/c"):
            v = get_parameter_or_create("V", (3,))
    top = get_parameter_or_create("x/y", (1,))
    assert list(get_parameters()) == ["a/W", "a/b/c/V", "x/y"]
    assert get_parameters()["a/W"] is w
    assert get_parameter("a/b/c/V") is v
    assert get_parameter("x/y") is top
    with parameter_scope("a"):
        assert list(get_parameters()) == ["W", "b/c/V"]
        assert get_parameter("b/c/V") is v
        assert get_parameter_or_create("W") is w


def test_get_parameters_adds_to_params_under_path() -> None:
    set_parameter("W", Variable((1,), need_grad=True))
    found = get_parameters(OrderedDict(first=Variable(())), path="net")
    assert list(found) == ["first", "net/W"]


def test_grad_only() -> None:
    get_parameter_or_create("w", (1,))
    get_parameter_or_create("mean", (1,), need_grad=False)
    assert list(get_parameters()) == ["w"]
    assert list(get_parameters(grad_only=False)) == ["w", "mean"]


def test_scope_as_decorator_and_reentered() -> None:
    @parameter_scope("layer")
    def layer(depth: int) -> Variable:
        return get_parameter_or_create("w", (1,)) if depth == 0 else layer(depth - 1)

    layer(0)
    layer(1)
    assert list(get_parameters()) == ["layer/w", "layer/layer/w"]
    scope = parameter_scope("again")
    with scope, scope:
        get_parameter_or_create("w", (1,))
    assert "again/again/w" in get_parameters()


def test_scope_of_its_own() -> None:
    own: OrderedDict = OrderedDict()
    with parameter_scope("", own) as inside:
        assert inside is own
        get_parameter_or_create("w", (1,))
    with parameter_scope("sub", own):
        get_parameter_or_create("v", (1,))
    assert not get_parameters()
    with parameter_scope("", own):
        assert list(get_parameters()) == ["w", "sub/v"]


def test_name_of_parameter_is_no_scope_and_the_other_way_round() -> None:
    get_parameter_or_create("a/w", (1,))
    with pytest.raises(ValueError, match="'a/w' is a parameter"), parameter_scope("a/w"):
        pass
    with pytest.raises(ValueError, match="is a scope"):
        set_parameter("a", Variable(()))
    with pytest.raises(TypeError, match="must be a Variable"):
        set_parameter("b", 1.0)
    with pytest.raises(TypeError, match="name must be a str"):
        parameter_scope(3)
    with pytest.raises(TypeError, match="scope must come from"):
        parameter_scope("", Variable(()))


def test_pop_and_clear() -> None:
    w = get_parameter_or_create("a/w", (1,))
    get_parameter_or_create("b/v", (1,))
    assert pop_parameter("a/w") is w
    assert pop_parameter("a/w") is None
    assert pop_parameter("nowhere/at/all") is None
    assert list(get_parameters()) == ["b/v"]
    with parameter_scope("b"):
        clear_parameters()
    assert not get_parameters()


def test_names_are_checked(tmp_path: Path) -> None:
    w = Variable((2,))
    for call in (lambda: set_parameter(3, w), lambda: get_parameter(3), lambda: pop_parameter(3)):
        with pytest.raises(TypeError, match="key: the name of a parameter must be a str, got 3"):
            call()
    with pytest.raises(TypeError, match="name: the name of a parameter must be a str, got 3"):
        get_parameter_or_create(3, (2,))
    with pytest.raises(ValueError, match="name must not be empty"):
        get_parameter_or_create("", (2,))
    for name in ("__metadata__", "a/__metadata__"):
        with pytest.raises(ValueError, match="cannot be named '__metadata__'"):
            set_parameter(name, w)
        with pytest.raises(ValueError, match="cannot be named '__metadata__'"):
            get_parameter_or_create(name, (2,))
    path = tmp_path / "p.safetensors"
    with pytest.raises(ValueError, match=r"p\.safetensors: a parameter cannot be named '__metadata__'"):
        save_parameters(path, {"__metadata__": w})
    assert not path.exists() and not get_parameters()


def test_shape_must_agree() -> None:
    get_parameter_or_create("w", (2, 3))
    assert get_parameter_or_create("w", [2, 3]).shape == (2, 3)
    with pytest.raises(ValueError, match=r"'w' exists with shape \(2, 3\), but \(3, 2\)"):
        get_parameter_or_create("w", (3, 2))
    with parameter_scope("conv1"), parameter_scope("affine"):
        get_parameter_or_create("W", (2,))
        with pytest.raises(ValueError, match=r"'conv1/affine/W' exists with shape \(2,\), but \(3,\) was requested"):
            get_parameter_or_create("W", (3,))
        with pytest.raises(ValueError, match=r"'conv1/affine/b' has shape \(2,\), but its initial value has \(3,\)"):
            get_parameter_or_create("b", (2,), np.zeros(3))
    w = pop_parameter("conv1/affine/W")
    for attribute in ("d", "g"):
        with pytest.raises(ValueError, match=r"^conv1/affine/W: expected .* shape \(2,\), .* got shape \(3,\)"):
            setattr(w, attribute, np.zeros(3))
    with pytest.raises(ValueError, match="pass its shape"):
        get_parameter_or_create("v")
    with pytest.raises(ValueError, match="initial value"):
        get_parameter_or_create("v", (2,), lambda _: np.zeros(3))
    with pytest.raises(TypeError, match="initializer must be"):
        get_parameter_or_create("v", (2,), "zeros")
    assert list(get_parameters()) == ["w"]


def test_need_grad_and_as_need_grad() -> None:
    w = get_parameter_or_create("w", (2,))
    fixed = get_parameter_or_create("w", (2,), as_need_grad=False)
    assert w.need_grad and not fixed.need_grad and fixed is not w
    assert fixed.data is w.data
    w.d = 3.0
    np.testing.assert_array_equal(fixed.d, [3.0, 3.0])
    assert get_parameter_or_create("w", (2,), as_need_grad=True) is w
    assert get_parameter_or_create("w", (2,), need_grad=False) is w and not w.need_grad


def test_initializers_as_arrays_and_functions() -> None:
    a = get_parameter_or_create("a", initializer=np.arange(6.0).reshape(2, 3))
    assert a.dtype == np.float32 and a.shape == (2, 3)
    b = get_parameter_or_create("b", (2,), lambda shape: np.full(shape, 7))
    np.testing.assert_array_equal(b.d, [7, 7])
    assert get_parameter_or_create("c", (2,), dtype="float64").dtype == np.float64


def test_threads_share_parameters_but_not_the_scope() -> None:
    found, errors = [], []
    barrier = threading.Barrier(4)

    def work(i: int) -> None:
        try:
            barrier.wait()
            for k in range(50):
                with parameter_scope(f"layer{k}"):
                    found.append((k, get_parameter_or_create("W", (2,), NormalInitializer())))
                    get_parameter_or_create(f"own{i}", (1,))
                get_parameters()
        except Exception as error:
            errors.append(error)

    with parameter_scope("outside"):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not get_parameters()
    assert not errors
    assert len({(k, id(w)) for k, w in found}) == 50
    assert len(get_parameters()) == 250


# ---------------------------------------------------------------- initial values


def test_initializers_are_reproducible() -> None:
    for make in (NormalInitializer, UniformInitializer, UniformIntInitializer, OrthogonalInitializer):
        seed(3)
        first, second = make()((4, 3)), make()((4, 3))
        seed(3)
        np.testing.assert_array_equal(make()((4, 3)), first)
        assert not np.array_equal(first, second)
        for rng in (np.random.default_rng, np.random.RandomState):
            np.testing.assert_array_equal(make(rng=rng(1))((4, 3)), make(rng=rng(1))((4, 3)))
    with pytest.raises(TypeError, match="rng"):
        NormalInitializer(rng=3)


def test_distributions() -> None:
    seed(0)
    assert abs(np.std(NormalInitializer(0.5)((200, 200))) - 0.5) < 0.01
    x = UniformInitializer((2, 4))((200, 200))
    assert 2 <= x.min() < 2.01 and 3.99 < x.max() <= 4
    assert set(np.unique(UniformIntInitializer((1, 4))((100,)))) == {1, 2, 3}
    np.testing.assert_array_equal(ConstantInitializer(2)((2,)), [2, 2])
    np.testing.assert_array_equal(RangeInitializer(1, 2)((2, 3)), [[1, 3, 5], [1, 3, 5]])
    assert RangeInitializer(5)(()).shape == ()


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    m = OrthogonalInitializer(2.0)(shape).reshape(shape[0], -1)
    gram = m @ m.T if m.shape[0] <= m.shape[1] else m.T @ m
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-12)
    with pytest.raises(ValueError, match="two axes"):
        OrthogonalInitializer()((3,))


# ---------------------------------------------------------------- files

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"]


def test_save_and_load(tmp_path: Path) -> None:
    for i, dtype in enumerate(DTYPES):
        set_parameter(f"z{len(DTYPES) - i}/{dtype}", Variable((2, 3), need_grad=i % 2 == 0 and i < 4, dtype=dtype))
        get_parameters(grad_only=False)[f"z{len(DTYPES) - i}/{dtype}"].d = np.arange(6).reshape(2, 3) % 2
    set_parameter("scalar", Variable((), need_grad=True))
    set_parameter("empty", Variable((0, 3)))
    before = get_parameters(grad_only=False)
    path = tmp_path / "p.safetensors"
    save_parameters(path)
    clear_parameters()
    after = load_parameters(path)
    assert list(after) == list(before) == list(get_parameters(grad_only=False))
    for name, p in before.items():
        q = get_parameter(name)
        assert q is not None and q.spec is p.spec and q.need_grad == p.need_grad
        np.testing.assert_array_equal(q.d, p.d)


def test_loading_keeps_variables_and_their_dtype(tmp_path: Path) -> None:
    w = get_parameter_or_create("w", (2,), ConstantInitializer(1.5))
    save_parameters(str(tmp_path / "p.safetensors"))
    w.d = 0.0
    cell = w.data
    load_parameters(tmp_path / "p.safetensors")
    assert get_parameter("w") is w and w.data is cell
    np.testing.assert_array_equal(w.d, [1.5, 1.5])
    clear_parameters()
    half = get_parameter_or_create("w", (2,), dtype=ml_dtypes.bfloat16)
    load_parameters(tmp_path / "p.safetensors")
    assert half.dtype == ml_dtypes.bfloat16 and half.d[0] == 1.5


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_parameters(path, {"a": Variable.from_numpy_array([1.0]), "b": Variable.from_numpy_array([1.0, 1.0])})
    a = get_parameter_or_create("a", (1,))
    b = get_parameter_or_create("b", (3,))
    with pytest.raises(ValueError, match=r"p\.safetensors.*'b' has shape \(2,\) in the file, but \(3,\) here"):
        load_parameters(path)
    assert a.d[0] == 0 and get_parameter("b") is b
    clear_parameters()
    get_parameter_or_create("b", (2,), dtype="int32")
    with pytest.raises(ValueError, match="'b' is float32 in the file, but int32 here"):
        load_parameters(path)
    clear_parameters()
    get_parameter_or_create("b/c", (2,))
    with pytest.raises(ValueError, match="'b' is a parameter in the file, but a scope here"):
        load_parameters(path)
    assert get_parameter("a") is None
    clear_parameters()
    save_parameters(path, {"a/b/c": Variable(())})
    get_parameter_or_create("a/b", ())
    with pytest.raises(ValueError, match="needs 'a/b' as a scope"):
        load_parameters(path)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    with pytest.raises(FileNotFoundError, match=r"p\.safetensors"):
        load_parameters(path)
    for content in (b"", b"not a file of this kind", b"\x08\0\0\0\0\0\0\0{{{{{{{{"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"p\.safetensors: not a safetensors file"):
            load_parameters(path)
    save_parameters(path, {"w": Variable((100,))})
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"p\.safetensors"):
        load_parameters(path)
    with pytest.raises(ValueError, match=r"cannot be written as '\.pt'"):
        save_parameters(tmp_path / "p.pt")
    with pytest.raises(FileNotFoundError, match=r"missing/p\.safetensors"):
        save_parameters(tmp_path / "missing" / "p.safetensors", {"w": Variable(())})
    with pytest.raises(TypeError, match="expected a Variable"):
        save_parameters(path, {"w": np.ones(2)})
