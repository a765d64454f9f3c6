"""Checkpointer: what it saves, when, and what comes back."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.random import get_draws, next_key, set_draws
from tests.faults.counting import Counting
from tests.solver_states import state_arrays


@pytest.fixture(autouse=True)
def _no_parameters() -> Iterator[None]:
    nn.clear_parameters()
    before = get_draws()
    yield
    set_draws(before)
    nn.clear_parameters()


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(step)
    return rng.normal(size=(8, 4)).astype(np.float32), rng.normal(size=(8, 1)).astype(np.float32)


def loss_of(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    with nn.parameter_scope("first"):
        h = PF.batch_normalization(PF.affine(x, 6))
    with nn.parameter_scope("second"):
        y = PF.affine(F.dropout(F.tanh(h), 0.3), 1)
    return F.mean(F.squared_error(y, t))


def as_one_executable(solver: S.Solver) -> Callable[..., Any]:
    """A step whose graph and parameters are made at its first call."""
    return nn.train_step(loss_of, nn.get_parameters, solver)


def classic(solver: S.Solver) -> Callable[..., Any]:
    """A step as it is written in nnabla, whose parameters are there at once."""
    x, t = nn.Variable((8, 4)), nn.Variable((8, 1))
    loss = loss_of(x, t)
    solver.set_parameters(nn.get_parameters())

    def step(xs: np.ndarray, ts: np.ndarray) -> Any:
        x.d, t.d = xs, ts
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        return loss.d

    return step


def all_arrays(solver: S.Solver) -> dict[str, np.ndarray]:
    arrays = {name: np.array(p.d) for name, p in nn.get_parameters(grad_only=False).items()}
    return arrays | {f"state {name}": array for name, array in state_arrays(solver).items()}


def assert_same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    assert [name for name in a if a[name].tobytes() != b[name].tobytes()] == []


def trained(path: Path, steps: int = 4, **options: Any) -> tuple[S.Solver, nn.Checkpointer]:
    """A parameter that counts steps, saved after each of them."""
    w = nn.parameter.get_parameter_or_create("w", (3,))
    solver = S.Momentum(0.5)
    solver.set_parameters(nn.get_parameters())
    checkpointer = nn.Checkpointer(path, solver, **options)
    for step in range(1, steps + 1):
        w.g = 1.0
        solver.update()
        checkpointer.save(step)
    return solver, checkpointer


# ---------------------------------------------------------------- what is saved


@pytest.mark.parametrize("make", [as_one_executable, classic])
def test_a_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path, make: Callable[..., Any]) -> None:
    def run(until: int, every: int | None = None) -> dict[str, np.ndarray]:
        nn.clear_parameters()
        nn.seed(3)
        solver = S.Adam(1e-2)
        solver.loss_scaling(nn.DynamicLossScale(interval=3) if make is as_one_executable else None)
        checkpointer = nn.Checkpointer(tmp_path, solver, keep=None, every=every)
        step = make(solver)
        done = checkpointer.restore()
        assert done == (0 if every else 5)
        if not every:
            assert solver.learning_rate() == 1e-3
        for number in range(done + 1, until + 1):
            if number == 4:
                solver.set_learning_rate(1e-3)
            checkpointer.after_step(number, step(*batch(number)))
        return all_arrays(solver)

    with nn.deterministic():
        whole = run(9, every=5)
        assert_same_bits(whole, run(9))


def test_all_kinds_of_arrays_come_back(tmp_path: Path) -> None:
    import ml_dtypes

    rng = np.random.default_rng(0)
    dtypes = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, bool, "i1", "i8", "u4", "u8"]
    values = {
        f"{np.dtype(d).name}/{'x'.join(map(str, shape)) or 'scalar'}": rng.integers(0, 2, shape).astype(d)
        for d in dtypes for shape in [(), (3,), (70, 80), (0, 2)]
    }
    values["odd % é name/with.dots/w"] = np.ones(2, np.float32)
    for name, value in values.items():
        nn.parameter.get_parameter_or_create(name, initializer=value, dtype=value.dtype)
    frozen = nn.get_parameters()["float32/3"]
    frozen.need_grad = False
    order = list(nn.get_parameters(grad_only=False))
    nn.Checkpointer(tmp_path / "a").save(0)
    nn.clear_parameters()
    assert nn.Checkpointer(tmp_path / "a").restore() == 0
    assert list(nn.get_parameters(grad_only=False)) == order
    for name, p in nn.get_parameters(grad_only=False).items():
        assert p.dtype == values[name].dtype and p.shape == values[name].shape
        assert p.d.tobytes() == values[name].tobytes()
        assert p.need_grad == (p.spec.differentiable and name != "float32/3")


class Average:
    """Stands for what somebody adds."""

    def __init__(self) -> None:
        self.state: Any = None

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


def test_what_is_added_comes_back(tmp_path: Path) -> None:
    average, facts = Average(), {"names": ["a", None], "table": np.arange(3), "big": 2**64 - 1, "nan": float("nan")}
    average.state = {"mean": jnp.ones((2, 2)), "deep": [{"raw": b"\0\xff", "of": [True, -0.0]}]}
    solver, _ = trained(tmp_path / "other", 1)
    checkpointer = nn.Checkpointer(tmp_path / "c", {"critic": solver}, extra={"average": average, "facts": facts})
    checkpointer.save(1)
    facts.clear()
    average.state = None
    assert checkpointer.restore() == 1
    assert facts["names"] == ["a", None] and facts["big"] == 2**64 - 1 and facts["nan"] != facts["nan"]
    assert facts["table"].tolist() == [0, 1, 2]
    assert average.state["mean"].tolist() == [[1, 1], [1, 1]]
    assert average.state["deep"] == [{"raw": b"\0\xff", "of": [True, -0.0]}]
    for value, message in [({1: 2}, "the keys of a state must be strings, got 1"), ({"x": object()}, "got object")]:
        average.state = value
        with pytest.raises(TypeError, match=f"average: .*{message}"):
            checkpointer.save(2)


def test_random_draws_go_on(tmp_path: Path) -> None:
    seed = 20_815  # of this test alone: streams of a seed are told by their order, and those of other tests may end
    nn.seed(8)
    x = nn.Variable((4,), name="x")

    def drawn() -> nn.Variable:
        return F.dropout(x, 0.5, seed=seed) + F.rand(shape=(4,)) + F.randn(shape=(4,), seed=seed)

    def positions(draws: dict[str, Any]) -> list[list[int]]:
        return next([list(position) for position in of] for each, of in draws["functions"] if each == seed)

    y = drawn()
    x.d = np.ones(4)

    def draw() -> list[float]:
        y.forward()
        return y.d.tolist()

    draw()
    draws = json.loads(json.dumps(get_draws()))
    after = [draw() for _ in range(3)] + [next_key().tolist()]
    set_draws(draws)
    assert [draw() for _ in range(3)] + [next_key().tolist()] == after
    # Where the functions are made only after the draws were restored:
    del y
    gc.collect()
    set_draws(draws)
    again = get_draws()
    assert (again["seed"], list(again["thread"])) == (draws["seed"], draws["thread"])
    assert positions(again) == positions(draws) and [drawn for _, drawn in positions(draws)] == [1, 1]
    y = drawn()
    assert [draw() for _ in range(3)] + [next_key().tolist()] == after


def test_a_checkpoint_is_of_one_step(tmp_path: Path) -> None:
    """Further steps reuse the memory of those before. All values follow from the step."""
    model = Counting((5, 1000, 300_000))
    checkpointer = nn.Checkpointer(tmp_path, model.solver, parameters=model.parameters, keep=None)
    step = model.warm_step()
    saved = []
    for number in range(4, 60):
        step(model.ones)
        if number % 8 == 0:
            checkpointer.save(number)
            saved.append(number)
    assert checkpointer.steps() == saved
    for number in saved:
        checkpointer.restore(number)
        for name, array in model.arrays().items():
            assert set(array) == {-number * (number + 1) / 2}, (number, name)
        for array in state_arrays(model.solver).values():
            assert set(array.ravel()) == {number}
    before = model.count()
    step(model.ones)
    assert model.count() == before + 1


def test_modules_and_variables_by_name(tmp_path: Path) -> None:
    class Net(nn.Module):
        def call(self, x: nn.Variable) -> nn.Variable:
            return PF.affine(x, 2)

    def run(net: Net, solver: S.Solver, checkpointer: nn.Checkpointer) -> int:
        step = nn.train_step(lambda x: F.mean(net(x) ** 2), lambda: net.get_parameters(), solver)
        first = checkpointer.restore()
        for number in range(first + 1, 4):
            step(np.ones((2, 3), np.float32))
            checkpointer.save(number)
        return first

    net, solver = Net(), S.Adam()
    assert run(net, solver, nn.Checkpointer(tmp_path, solver, parameters=net)) == 0
    again, other = Net(), S.Adam()
    assert run(again, other, nn.Checkpointer(tmp_path, other, parameters=again)) == 3
    assert {n: p.d.tolist() for n, p in again.get_parameters().items()} == {
        n: p.d.tolist() for n, p in net.get_parameters().items()}
    assert_same_bits(state_arrays(solver), state_arrays(other))
    assert not nn.get_parameters()


# ---------------------------------------------------------------- which ones stay


def test_the_last_ones_stay(tmp_path: Path) -> None:
    nn.parameter.get_parameter_or_create("w", (3,))
    checkpointer = nn.Checkpointer(tmp_path, keep=2, every=1)
    for number in range(1, 5):
        checkpointer.after_step(number, 5.0)
    assert checkpointer.steps() == [3, 4]
    assert checkpointer.restore(3) == 3
    with pytest.raises(ValueError, match=r"step: must come after those of .*, \[4\], got 4"):
        checkpointer.save(4)
    assert checkpointer.restore() == 4
    checkpointer.save(4)  # which is there
    checkpointer.save(5)
    assert checkpointer.steps() == [4, 5]


# ---------------------------------------------------------------- damage


def test_every_damage_is_recognised(tmp_path: Path) -> None:
    trained(tmp_path / "good", 2, keep=None)
    content = (tmp_path / "good" / "2.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    named = [content.index(name) for name in (b"parameters/w", b"learning_rate")]
    flipped = [content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
               for at in (0, 8, *named, size // 2, size + 9, len(content) - 1)]
    for damaged in (b"", content[: len(content) // 2], content[:-1], content + b"0", *flipped):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        (tmp_path / "bad" / "2.safetensors").write_bytes(damaged)
        nn.clear_parameters()
        checkpointer = nn.Checkpointer(tmp_path / "bad", S.Momentum(0.5))
        said = r"bad/2\.safetensors: the checkpoint is damaged, .*; restore\(1\) takes the one before"
        with pytest.raises(ValueError, match=said):
            checkpointer.restore()
        assert not nn.get_parameters()
    (tmp_path / "bad" / "2.safetensors").unlink()
    assert checkpointer.restore() == 1
    assert nn.get_parameters()["w"].d.tolist() == [-0.5] * 3
    checkpointer.save(2)
    assert checkpointer.steps() == [1, 2]
    nn.save_parameters(tmp_path / "bad" / "1.safetensors")
    with pytest.raises(ValueError, match=r"bad/1\.safetensors: the checkpoint is damaged.*; there is none before it"):
        checkpointer.restore(1)


def test_what_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, checkpointer = trained(tmp_path, 1)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"the checkpoint of step 2 could not be written: .*cannot be written"):
        checkpointer.save(2)
    assert checkpointer.steps() == [1]
    monkeypatch.undo()
    (tmp_path / ".nngrad-left.tmp").write_bytes(b"by a process that was killed")
    checkpointer.save(3)
    assert checkpointer.steps() == [1, 3]
    assert sorted(os.listdir(tmp_path)) == ["1.safetensors", "3.safetensors"]
    assert checkpointer.restore() == 3


# ---------------------------------------------------------------- what does not fit


def test_what_does_not_fit_is_listed_and_nothing_is_changed(tmp_path: Path) -> None:
    w = nn.parameter.get_parameter_or_create
    for name, shape, dtype in [("a", (2,), "float32"), ("b", (3,), "float32"), ("c", (), "float16")]:
        w(name, shape, dtype=dtype)
    solver = S.Adam()
    solver.set_parameters(nn.get_parameters())
    nn.Checkpointer(tmp_path, solver, extra={"facts": {"array": np.ones(2)}}).save(1)
    nn.clear_parameters()
    w("a", (3,)).d = 7.0
    w("c", ())
    w("d", (2,))
    other = S.Adam()
    other.set_parameters(nn.get_parameters())
    next_key()
    draws = get_draws()
    with pytest.raises(ValueError, match="does not fit") as error:
        nn.Checkpointer(tmp_path, {"solver": other, "critic": S.Sgd()}, extra={"mine": {}}).restore()
    for line in [
        "parameter 'd' is not in the checkpoint",
        "parameter 'a' is float32[2] in the checkpoint, but float32[3] here",
        "parameter 'c' is float16[] in the checkpoint, but float32[] here",
        "solver: parameter 'b' is only in the checkpoint",
        "critic is not in the checkpoint",
        "mine is not in the checkpoint",
        "facts is only in the checkpoint",
    ]:
        assert line in str(error.value), line
    assert nn.get_parameters()["a"].d.tolist() == [7, 7, 7] and list(nn.get_parameters()) == ["a", "c", "d"]
    assert get_draws() == draws
    nn.clear_parameters()
    with pytest.raises(ValueError, match="solver: is Adam in the checkpoint, but Momentum here"):
        nn.Checkpointer(tmp_path, S.Momentum()).restore(only=["solver", "parameters"])
    with pytest.raises(ValueError, match="solver has no parameters yet"):
        nn.Checkpointer(tmp_path, S.Adam()).restore(only=["solver"])
    with pytest.raises(ValueError, match="is only in the checkpoint"):
        nn.Checkpointer(tmp_path, parameters={"a": nn.Variable((2,))}).restore(only=["parameters"])


def test_parts_and_settings(tmp_path: Path) -> None:
    trained(tmp_path, 3)
    assert nn.get_parameters()["w"].d[0] < -1
    nn.clear_parameters()
    solver = S.Momentum(0.125, momentum=0.5)
    checkpointer = nn.Checkpointer(tmp_path, solver)
    draws = get_draws()
    assert checkpointer.restore(only=["parameters"]) == 3
    assert nn.get_parameters()["w"].d[0] < -1 and get_draws() == draws
    assert solver.learning_rate() == 0.125 and not solver.get_parameters()
    assert checkpointer.restore(1) == 1
    assert solver.learning_rate() == 0.5 and state_arrays(solver)["m:w"].tolist() == [0.5] * 3
    with pytest.raises(ValueError, match=r"only: expected some of \['parameters', 'random', 'solver'\], got"):
        checkpointer.restore(only=["feed"])


def test_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, error, message in [
        ({"keep": 0}, ValueError, "keep: must be 1 or more, got 0"),
        ({"every": 1.5}, TypeError, r"every: expected an int or None, got 1\.5"),
        ({"solver": 3}, TypeError, "solver: expected a Solver or a dict of Solvers, got int"),
        ({"solver": {"parameters": S.Sgd()}}, ValueError, "solver, extra: names must be .* got 'parameters'"),
        ({"extra": {"feed": {}}}, ValueError, "solver, extra: names must be .* got 'feed'"),
        ({"extra": {"x": 3}}, TypeError, "x: expected a dict, or an object with get_state"),
        ({"solver": S.Sgd(), "extra": {"solver": {}}}, ValueError, "solver, extra: names must be .* got 'solver'"),
        ({"feed": [1]}, TypeError, "feed: expected a dict, or an object"),
        ({"parameters": [nn.Variable(())]}, TypeError, "parameters: expected Variables by name or a Module, got list"),
    ]:
        with pytest.raises(error, match=message):
            nn.Checkpointer(tmp_path, **options)
    with pytest.raises(ValueError, match="step: must be 0 or more, got -1"):
        nn.Checkpointer(tmp_path).save(-1)


# ---------------------------------------------------------------- numbers that are not finite


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    nn.parameter.get_parameter_or_create("w", (3,))
    checkpointer = nn.Checkpointer(tmp_path, every=4)
    losses = [1.0, 2.0, 3.0, 4.0, 5.0, float("nan"), 7.0, 8.0]
    with pytest.raises(FloatingPointError, match=r"the loss of step 6 is nan; the last good .* is of step 4"):
        for number, loss in enumerate(losses, 1):
            checkpointer.after_step(number, jnp.float32(loss))
    assert number == 8 and checkpointer.steps() == [4]
    checkpointer = nn.Checkpointer(tmp_path)  # which never saves by itself
    with pytest.raises(FloatingPointError, match="the loss of step 11 is inf"):
        for number in range(10, 100):
            checkpointer.after_step(number, np.float32(np.inf if number > 10 else 1))
    assert number == 11 + 8


def test_parameters_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    w = nn.parameter.get_parameter_or_create("a/w", (3,))
    checkpointer = nn.Checkpointer(tmp_path)
    checkpointer.save(1)
    w.d = [1, np.inf, 2]
    with pytest.raises(FloatingPointError, match=r"after step 2, 'a/w' contains infinities or NaN; .* of step 1"):
        checkpointer.save(2)
    assert checkpointer.steps() == [1] and checkpointer.restore() == 1
    checkpointer.save(2)
    assert checkpointer.steps() == [1, 2]


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_step_finish_saves_and_ends(tmp_path: Path, number: signal.Signals) -> None:
    nn.parameter.get_parameter_or_create("w", (3,))
    checkpointer = nn.Checkpointer(tmp_path, every=100)
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, checkpointer.saving_on_signals():
        for step in range(1, 10):
            if step == 3:
                os.kill(os.getpid(), number)
                if number == signal.SIGTERM:
                    os.kill(os.getpid(), number)
                else:
                    with pytest.raises(KeyboardInterrupt):
                        os.kill(os.getpid(), number)
            checkpointer.after_step(step, 1.0)
    assert ended.value.code == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert step == 3 and checkpointer.steps() == [3] and signal.getsignal(number) is before


def test_a_signal_after_the_last_step_and_errors(tmp_path: Path) -> None:
    nn.parameter.get_parameter_or_create("w", (3,))
    checkpointer = nn.Checkpointer(tmp_path, every=100)
    with pytest.raises(SystemExit), checkpointer.saving_on_signals():
        checkpointer.after_step(5)
        os.kill(os.getpid(), signal.SIGTERM)
    assert checkpointer.steps() == [5]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), checkpointer.saving_on_signals():
        checkpointer.save(6)
        raise KeyError
    assert signal.getsignal(signal.SIGTERM) is before
    assert sorted(os.listdir(tmp_path)) == ["5.safetensors", "6.safetensors"]
    with checkpointer.saving_on_signals():
        checkpointer.after_step(7)
    assert checkpointer.steps() == [5, 6]
