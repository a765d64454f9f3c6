"""States of solvers in nnabla's form and files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.nnabla.solver import SolverState
from nngrad.solvers.declared import Declared
from tests.slow import slow_but_every
from tests.solver_states import state_arrays

DATA = Path(__file__).parents[1] / "data"
STATES = DATA / "nnabla_states"
TOLD: Any = json.loads((STATES / "training.json").read_text())


def trained_elsewhere(kind: str) -> tuple[nn.Variable, S.Solver]:
    """The loss that nnabla trained, with the parameters that it had when it wrote the state."""
    nn.clear_parameters()
    x, t = (nn.Variable.from_numpy_array(np.array(TOLD[name], np.float32)) for name in "xt")
    h = F.tanh(PF.affine(x, 4, name="one"))
    loss = F.mean(F.squared_error(PF.affine(h, 2, name="two"), t))
    for name, value in TOLD["solvers"][kind]["parameters"].items():
        nn.get_parameters()[name].d = value
    solver = getattr(S, kind)()
    solver.set_parameters(nn.get_parameters())
    solver.set_learning_rate(0.03)
    return loss, solver


def losses_of(loss: nn.Variable, solver: S.Solver) -> list[float]:
    losses = []
    for _ in range(8):
        loss.forward()
        solver.zero_grad()
        loss.backward()
        losses.append(float(loss.d))
        solver.update()
    return losses


FILES = sorted([path.name for path in STATES.iterdir() if path.suffix != ".json"])


@pytest.mark.parametrize("file", slow_but_every(4, FILES))
def test_training_goes_on_from_a_file_of_nnabla_s_as_it_does_there(file: str, tmp_path: Path) -> None:
    pytest.importorskip("h5py" if file.endswith(".h5") else "google.protobuf")
    kind = file.partition(".")[0]
    loss, solver = trained_elsewhere(kind)
    solver.load_states(STATES / file)
    assert {state.t for state in solver.get_states().values()} == {5} == {solver.updates}
    solver.save_states(tmp_path / file)
    solver.save_states(tmp_path / "s.safetensors")
    np.testing.assert_allclose(losses_of(loss, solver), TOLD["solvers"][kind]["losses"], rtol=0, atol=1e-5)
    expected = state_arrays(solver)
    for name in (file, "s.safetensors"):
        loss, again = trained_elsewhere(kind)
        again.load_states(tmp_path / name)
        assert again.updates == 5
        losses_of(loss, again)
        assert {n: a.tolist() for n, a in state_arrays(again).items()} == {n: a.tolist() for n, a in expected.items()}


def described(path: Path) -> dict[str, Any]:
    """What is in a state file of nnabla's: dtypes, shapes and values, without the order of parameters, which nnabla
    leaves to chance."""
    found = {}

    def add(name: str, item: Any) -> None:
        is_array = hasattr(item, "dtype")
        found[name] = (sorted([(key, value.dtype) for key, value in item.attrs.items()]),
                       (item.dtype, item.shape, item[()].tolist()) if is_array else None)

    with importlib.import_module("h5py").File(path) as file:
        file.visititems(add)
    return found


def test_h5_files_are_written_as_nnabla_writes_them(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    _, solver = trained_elsewhere("Adam")
    solver.load_states(STATES / "Adam.h5")
    solver.save_states(tmp_path / "Adam.h5")
    assert described(tmp_path / "Adam.h5") == described(STATES / "Adam.h5")


def solver_of(kind: type[S.Solver], *names: str) -> S.Solver:
    solver = kind()
    solver.set_parameters({n: nn.Variable.from_numpy_array(np.ones(2, np.float32), need_grad=True) for n in names})
    return solver


def updated(solver: S.Solver, times: int) -> None:
    for _ in range(times):
        for w in solver.get_parameters().values():
            w.g = [1.0, -2.0]
        solver.update()


def test_states_are_in_nnabla_s_form() -> None:
    solver = solver_of(S.Adam, "conv/W", "conv/b")
    updated(solver, 2)
    states = solver.get_states()
    assert list(states) == ["conv/W", "conv/b"] and all([state.t == 2 for state in states.values()])
    mean = states["conv/W"].pstate["mean"]
    assert isinstance(mean, nn.Variable) and set(states["conv/W"].pstate) == {"mean", "var"}
    np.testing.assert_allclose(mean.d, (0.1 + 0.9 * 0.1) * np.array([1.0, -2.0]), rtol=1e-6)
    mean.d = 7.0
    assert (state_arrays(solver)["mean:conv/W"] != 7).all()  # it is a copy
    solver.set_states(states)
    assert (state_arrays(solver)["mean:conv/W"] == 7).all()
    empty = SolverState()
    assert empty.pstate == {} and empty.t == 0
    arrays = {"mean": np.zeros(2, np.float32), "var": np.zeros(2, np.float32)}
    solver.set_states({name: SolverState(arrays, 9) for name in states})
    assert solver.updates == 9 and not state_arrays(solver)["var:conv/b"].any()


def test_what_cannot_be_a_state() -> None:
    solver = solver_of(S.Adam, "a", "b")
    updated(solver, 1)
    before = state_arrays(solver)
    states = solver.get_states()
    wrong = "t of 'a' must be an int between 0 and"
    for t, message in [(-1, wrong), (1.5, wrong), (True, wrong), (2**31, wrong),
                       (4, "t is 1 for 'b' and 4 for 'a', but this solver has one count")]:
        with pytest.raises(ValueError, match=message):
            solver.set_states({**states, "a": SolverState(states["a"].pstate, t)})
    with pytest.raises(ValueError, match=r"missing .'mean:b', 'var:b'"):
        solver.set_states({"a": states["a"]})
    with pytest.raises(ValueError, match=r"unknown .'mean:c', 'var:c'"):
        solver.set_states({**states, "c": states["a"]})
    with pytest.raises(TypeError, match="'a' must be a SolverState, with pstate and t"):
        solver.set_states({"a": np.zeros(2)})
    assert all([np.array_equal(array, before[name]) for name, array in state_arrays(solver).items()])
    momentum = solver_of(S.Momentum, "a", "b")  # which computes without the number
    states = momentum.get_states()
    states["b"].t = 3
    momentum.set_states(states)
    assert momentum.updates == 3


def test_what_belongs_to_no_parameter(tmp_path: Path) -> None:
    solver = solver_of(S.Adam, "w")
    solver.loss_scaling(nn.DynamicLossScale(8.0))
    for value in (1.0, np.inf, 1.0):
        solver.get_parameters()["w"].g = value
        solver.update()
    states = solver.get_states()
    assert (states["w"].t, states[""].t, solver.updates) == (2, 3, 3)
    assert states[""].pstate["loss_scale.skipped"].d == 1
    other = solver_of(S.Adam, "w")
    other.loss_scaling(nn.DynamicLossScale(8.0))
    other.set_states(states)
    assert (other.updates, other.skipped_updates, float(other.loss_scale)) == (3, 1, 4.0)
    for name in ("s.h5", "s.protobuf"):
        with pytest.raises(ValueError, match=rf"{name}: nnabla's format for states cannot hold loss_scale\.scale"):
            solver.save_states(tmp_path / name)
        assert not (tmp_path / name).exists()
    own = S.Solver.from_optax(optax.adam(0.1))
    own.set_parameters(solver.get_parameters())
    updated(own, 1)
    assert own.get_states()["w"].pstate.keys() == {"0.mu", "0.nu"} and own.get_states()[""].pstate["0.count"].d == 1
    before = state_arrays(own)
    own.set_states(own.get_states())
    assert all([np.array_equal(array, before[name]) for name, array in state_arrays(own).items()])


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    pytest.importorskip("google.protobuf")
    _, solver = trained_elsewhere("Momentum")
    with pytest.raises(ValueError, match=r"Adam\.h5: set_states: missing .*'m:one/affine/W'.*unknown .*'mean:one/aff"):
        solver.load_states(STATES / "Adam.h5")
    nn.save_parameters(tmp_path / "parameters.h5")
    with pytest.raises(ValueError, match=r"parameters\.h5: not a file of solver states: 'one/affine' has no 't'"):
        solver.load_states(tmp_path / "parameters.h5")
    nn.save_parameters(tmp_path / "parameters.safetensors")
    with pytest.raises(ValueError, match=r"parameters\.safetensors: not a file of solver states"):
        solver.load_states(tmp_path / "parameters.safetensors")
    (tmp_path / "other.protobuf").write_bytes(b"")
    with pytest.raises(ValueError, match=r"other\.protobuf: not a file of solver states"):
        solver.load_states(tmp_path / "other.protobuf")
    whole = (STATES / "Momentum.protobuf").read_bytes()
    (tmp_path / "damaged.protobuf").write_bytes(whole[:-3])
    with pytest.raises(ValueError, match=r"damaged\.protobuf: not an nnabla file, or a damaged one"):
        solver.load_states(tmp_path / "damaged.protobuf")


NAMED = [kind for kind in map(S.__dict__.get, S.__all__) if isinstance(kind, type) and issubclass(kind, Declared)]
SHAPES = {"a": (), "b": (3,), "c": (2, 2), "d": (70, 70), "e": (1, 5), "f": (4,)}
TYPES = dict.fromkeys("abde", "float32") | dict.fromkeys("cf", "float64")


@settings(max_examples=12, deadline=None)
@given(kind=st.sampled_from(NAMED), seed=st.integers(0, 99), plan=st.lists(
    st.tuples(st.sets(st.sampled_from("abcdef"), min_size=1), st.sampled_from(["", "", "restore", "remove"])),
    min_size=2, max_size=5))
def test_parameters_move_as_if_each_had_a_solver_of_its_own(
    kind: Any, seed: int, plan: list[tuple[set[str], str]]
) -> None:
    """Some small ones are moved as one array, some are frozen for a step, some leave."""
    rng = np.random.default_rng(seed)
    start = {name: np.asarray(rng.standard_normal(shape)) for name, shape in SHAPES.items()}

    def variables() -> dict[str, nn.Variable]:
        return {n: nn.Variable.from_numpy_array(a, need_grad=True, dtype=TYPES[n]) for n, a in start.items()}

    together, apart, solver, own = variables(), variables(), kind(), {name: kind() for name in start}
    solver.set_parameters(together)
    for name, alone in own.items():
        alone.set_parameters({name: apart[name]})
    for reached, then in plan:
        grads = {name: rng.standard_normal(SHAPES[name]) for name in sorted(reached)}
        for parameters in (together, apart):
            for name, p in parameters.items():
                p.grad.zero()
                if name in grads:
                    p.g = grads[name]
        for each in (solver, *own.values()):
            each.update()
        expected = {key: a for alone in own.values() for key, a in state_arrays(alone).items()}
        states = state_arrays(solver)
        for key, array in {**states, **{name: together[name].d for name in own}}.items():
            np.testing.assert_allclose(array, expected[key] if key in states else apart[key].d, 1e-5, 1e-7, err_msg=key)
        if then == "restore":
            solver.set_states(solver.get_states())
        if then == "remove" and len(own) > 1:
            gone = max(own)
            del own[gone]
            solver.remove_parameters([gone])


class Normed:
    def transformation(self, lr: Any) -> Any:
        return optax.chain(optax.scale_by_trust_ratio(), optax.scale(-lr))


@pytest.mark.parametrize("bases", [(S.Momentum,), (Normed, S.Momentum)], ids=["overridden", "mixed in"])
def test_a_subclass_that_looks_at_norms_is_given_each_parameter(bases: tuple[type, ...]) -> None:
    own = {} if Normed in bases else {"transformation": Normed.transformation}
    ps = {name: nn.Variable.from_numpy_array(np.full(2, float(i + 1)), need_grad=True) for i, name in enumerate("ab")}
    solver = type("OfNorms", bases, own)(0.1)
    solver.set_parameters(ps)
    for p in ps.values():
        p.g = [3.0, 4.0]
    solver.update()
    for i, p in enumerate(ps.values()):
        np.testing.assert_allclose(p.d, (i + 1) - 0.1 * np.array([3.0, 4.0]) * (i + 1) * 2**0.5 / 5, rtol=1e-6)
