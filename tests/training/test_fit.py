"""nn.fit and nn.training_log: what a run writes, that one which is resumed ends as others, and how runs end."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.nnabla.utils.data_iterator import data_iterator_simple
from nngrad.training.runs import Run


@pytest.fixture(autouse=True)
def _no_parameters() -> Iterator[None]:
    nn.clear_parameters()
    yield
    nn.clear_parameters()


def batches(epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Three batches, which are the same ones for the same epoch."""
    rng = np.random.default_rng(epoch)
    for _ in range(3):
        x = rng.normal(size=(4, 3)).astype(np.float32)
        yield x, np.sin(x[:, :1])


def loss_of(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    y = PF.affine(F.dropout(F.tanh(PF.affine(x, 4, name="hidden")), 0.2), 1, name="out")
    return F.mean(F.squared_error(y, t))


def weight() -> np.ndarray:
    return np.array(nn.get_parameters()["out/affine/W"].d)


def trained(folder: Path, at: int = 0, do: Callable[[], object] = lambda: None, **options: Any) -> Run:
    """A run as in a process of its own, in which something may happen after a step."""
    nn.clear_parameters()
    nn.seed(1)
    solver = S.Adam(1e-2)

    def happens(run: Any) -> None:
        if run.step == at:
            do()

    given: dict[str, Any] = {"data": batches, "epochs": 3, "every": 4, **options}
    given["callbacks"] = [happens, *given.get("callbacks", [])]
    with nn.deterministic():
        return nn.fit(
            nn.train_step(loss_of, nn.get_parameters, solver), log=folder,
            evaluate=lambda: {"size": np.abs(weight()).sum()},
            checkpoints=nn.Checkpointer(folder / "checkpoints", solver, every=5), **given,
        )  # fmt: skip


def rows(folder: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


# ---------------------------------------------------------------- a run


def test_it_is_the_loop_that_one_would_write(tmp_path: Path) -> None:
    run = trained(tmp_path)
    found = weight()
    assert run.step == 9 and run.stopped == ""
    assert [row["step"] for row in rows(tmp_path)] == [1, 4, 8, 9]
    nn.clear_parameters()
    nn.seed(1)
    step = nn.train_step(loss_of, nn.get_parameters, S.Adam(1e-2))
    with nn.deterministic():
        losses = [float(step(*batch)) for epoch in range(3) for batch in batches(epoch)]
    assert found.tobytes() == weight().tobytes()
    assert [line["loss"] for line in run.history] == [losses[i - 1] for i in (1, 4, 8, 9)]
    assert [row["loss"] for row in rows(tmp_path)] == [line["loss"] for line in run.history]
    assert run.history[-1]["size"] == float(np.abs(weight()).sum())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path, number: signal.Signals) -> None:
    whole = trained(tmp_path / "whole", at=4)
    expected = weight()
    kind: type[BaseException] = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with pytest.raises(kind) as ended:
        trained(tmp_path / "parts", at=4, do=lambda: os.kill(os.getpid(), number))
    kept = tmp_path / "parts" / "checkpoints" / "4.safetensors"
    assert kept.is_file()
    if number == signal.SIGINT:
        assert str(ended.value) == f"saved: {kept}; repeat the call of nn.fit to resume"
    with pytest.raises(RuntimeError, match="power failure"):
        trained(tmp_path / "parts", at=8, do=fail)
    assert rows(tmp_path / "parts")[-1]["step"] == 8, "it comes before the failure, and is taken away"
    resumed = trained(tmp_path / "parts")
    assert weight().tobytes() == expected.tobytes()
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert [line["step"] for line in resumed.history] == [line["step"] for line in whole.history]
    again = trained(tmp_path / "parts")
    assert again.step == 9 and weight().tobytes() == expected.tobytes(), "a finished run takes no step"
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    more = trained(tmp_path / "parts", epochs=4)
    assert more.step == 12


def fail() -> None:
    raise RuntimeError("power failure")


def feed() -> Any:
    return nn.feed(batches, epochs=3)


def iterator() -> Any:
    def example(i: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.full(3, i, np.float32)
        return x, np.sin(x[:1])

    return data_iterator_simple(example, 12, 4, shuffle=True, rng=np.random.RandomState(3))


LISTED = [batch for epoch in range(2) for batch in batches(epoch)]


@pytest.mark.parametrize(
    ("data", "options", "steps"),
    [
        (feed, {"epochs": None}, 9), (iterator, {"epochs": None, "steps": 7}, 7),
        (lambda: LISTED, {"epochs": None, "steps": 8}, 8), (lambda: iter(LISTED), {"epochs": None}, 6),
    ],
)  # fmt: skip
def test_data_of_all_kinds_go_on_where_they_were(
    data: Callable[[], Any], options: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    assert trained(tmp_path / "whole", data=data(), **options).step == steps
    expected = weight()
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "parts", at=min(5, steps - 1), do=interrupt, data=data(), **options)
    assert trained(tmp_path / "parts", data=data(), **options).step == steps
    assert weight().tobytes() == expected.tobytes()
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


def test_a_run_of_a_function_and_a_module_is_resumed(tmp_path: Path) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            self.blocks = [nn.Sequential(lambda x: PF.affine(x, 3)) for _ in range(2)]
            self.scale = nn.Parameter(1.0)

        def call(self, x: nn.Variable) -> nn.Variable:
            return F.mean(self.blocks[1](F.tanh(PF.batch_normalization(self.blocks[0](x)))) ** 2) * self.scale

    def run(steps: int, folder: str) -> dict[str, np.ndarray]:
        nn.seed(3)
        network, solver = Network(), S.Adam(1e-2)
        step = nn.train_step(lambda x, t: network(x) - F.mean(t), network, solver)
        nn.fit(step, batches, steps=steps, checkpoints=nn.Checkpointer(tmp_path / folder, solver))
        return {name: np.array(p.d) for name, p in network.get_parameters(grad_only=False).items()}

    expected = run(6, "whole")
    run(4, "parts")
    found = run(6, "parts")
    assert list(found) == list(expected) and len(found) == 9
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])


def test_a_step_without_data() -> None:
    taken: list[int] = []
    run = nn.fit(lambda: taken.append(1), steps=5, every=2, evaluate=lambda: {"taken": len(taken)})
    assert [(line["step"], line["taken"]) for line in run.history] == [(1, 1), (2, 2), (4, 4), (5, 5)]


def test_what_a_step_returns() -> None:
    results = [
        0.5, {"loss": np.float32(0.5)}, (np.float32(0.5), {"norm": 2.0, "y": np.ones(3)}), (0.5, (1, 2)),
        nn.Variable.from_numpy_array(np.float32(0.5)), nn.NdArray.from_numpy_array(np.float32(0.5)),
    ]  # fmt: skip
    found = nn.fit(results.__getitem__, range(6), every=1).history
    assert [line["loss"] for line in found] == [0.5] * 6
    assert found[2].keys() == {"step", "seconds", "loss", "norm"}
    with pytest.raises(TypeError, match=r"accuracies: expected a number .* of shape \(2,\)"):
        nn.fit(lambda: {"accuracies": np.ones(2)}, steps=1)


def test_evaluation_has_its_own_turn() -> None:
    asked: list[int] = []

    def evaluate() -> dict[str, float]:
        asked.append(1)
        return {"val_loss": 1.0}

    run = nn.fit(lambda: 0.5, steps=7, every=2, evaluate=evaluate, evaluate_every=3)
    assert [line["step"] for line in run.history if "val_loss" in line] == [1, 3, 6, 7]
    assert [line["step"] for line in run.history] == [1, 2, 3, 4, 6, 7]
    assert len(asked) == 4
    run = nn.fit(lambda _: 0.5, iter(range(7)), every=7, evaluate=evaluate, evaluate_every=3)
    assert [line["step"] for line in run.history if "val_loss" in line] == [1, 3, 6, 7]


# ---------------------------------------------------------------- stopping


def falling_until(step: int) -> Callable[[int], dict[str, float]]:
    return lambda number: {"loss": abs(number - step)}


class Patient:
    """Ends a run whose loss has not improved `patience` times in a row."""

    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.waited = patience, np.inf, 0

    def __call__(self, run: Run) -> None:
        if "loss" in run.metrics:
            self.waited = 0 if run.metrics["loss"] < self.best else self.waited + 1
            self.best = min(self.best, run.metrics["loss"])
            if self.waited >= self.patience:
                run.stop(f"waited {self.waited} times")

    def get_state(self) -> list[float]:
        return [self.best, self.waited]

    def set_state(self, state: list[float]) -> None:
        self.best, self.waited = state[0], int(state[1])


def test_a_callback_ends_the_run() -> None:
    run = nn.fit(falling_until(5), range(100), every=1, callbacks=iter([Patient(3)]))
    assert run.step == 9 and run.stopped == "waited 3 times"
    assert run.history[-1]["loss"] == 3
    run = nn.fit(falling_until(5), range(100), every=4, callbacks=[Patient(1)])
    assert run.step == 8, "only what is measured counts: 5, 2, 2 after the steps 1, 4 and 8"


def test_what_a_callback_has_counted_goes_on_with_the_run(tmp_path: Path) -> None:
    def options() -> dict[str, Any]:
        return {"epochs": 20, "every": 2, "callbacks": [Patient(2)]}

    whole = trained(tmp_path / "whole", **options())
    assert whole.stopped and whole.step < 60
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "parts", at=whole.step - 1, do=interrupt, **options())
    parts = trained(tmp_path / "parts", **options())
    assert (parts.step, parts.stopped) == (whole.step, whole.stopped)
    again = trained(tmp_path / "parts", **options())
    assert (again.step, again.stopped) == (whole.step, whole.stopped), "it stays stopped"
    with pytest.raises(ValueError, match="callbacks: differ from those of the run to resume"):
        trained(tmp_path / "parts")


# ---------------------------------------------------------------- what is not finite


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="the loss of step 4 is nan"):
        nn.fit(lambda number: np.nan if number == 3 else 1.0, range(100))
    with pytest.raises(FloatingPointError, match="the loss of step 4 is inf"):
        nn.fit(lambda number: np.inf if number == 3 else 1.0, range(5))
    with pytest.raises(FloatingPointError, match=r"loss of step 7 is nan; the last good checkpoint is of step 5"):
        trained(tmp_path, data=[(x * (np.nan if i == 6 else 1), t) for i, (x, t) in enumerate([*LISTED, *LISTED])],
                epochs=None)  # fmt: skip


def logarithm(x: nn.Variable) -> nn.Variable:
    """Infinite where all rows are 0, with a gradient that is NaN where some are."""
    sums = F.sum(PF.affine(x, 2, name="a", with_bias=False), axis=1)
    return F.mean(F.log(sums**2)) if x.shape[0] == 4 else F.sum((sums**2) ** 0.5)


@pytest.mark.parametrize("rows", [4, 6])
def test_the_function_is_named_that_made_the_first_one(rows: int) -> None:
    step = nn.train_step(logarithm, nn.get_parameters, S.Sgd(0.1), on_nan="raise")
    good = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    with pytest.raises(FloatingPointError) as raised:
        nn.fit(step, [good, good, 0 * good])
    said = str(raised.value)
    assert "left parameters and state unchanged. They first appear here:\n" in said
    assert ("infinity in <Log" if rows == 4 else "(order of differentiation 1, from the rule of") in said
    assert raised.value.__notes__ == ["nn.fit: in step 3"]
    assert np.isfinite(nn.get_parameters()["a/affine/W"].d).all()


# ---------------------------------------------------------------- the log


def test_a_loop_of_ones_own_is_resumed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), nn.training_log(tmp_path) as log:
        for step in range(1, 6):
            log(step, loss=step)
        fail()
    with nn.training_log(tmp_path, step=3) as log:
        assert [line["step"] for line in log.lines] == [1, 2, 3]
        log(4, loss=0.5)
        with pytest.raises(ValueError, match=r"step: must be .* above 4, got 4"):
            log(4, loss=0.5)
    assert [row["loss"] for row in rows(tmp_path)] == [1, 2, 3, 0.5]
    with nn.training_log(tmp_path) as log:
        log(1, loss=7)
    assert [row["loss"] for row in rows(tmp_path)] == [7]
    assert len(rows(tmp_path / "earlier-1")) == 4, "nothing is lost"


def test_it_is_quiet_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    nn.fit(lambda: 0.5, steps=3, every=1)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    nn.fit(lambda: 0.5, steps=12, log=nn.training_log(progress=console))
    assert "12/12 loss 0.5" in screen.getvalue()
    piped = io.StringIO()
    nn.fit(lambda: 0.5, steps=2, log=nn.training_log(progress=Console(file=piped)))
    assert not piped.getvalue()


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, ValueError, "steps: without data, pass steps"),
        ({"data": [1], "epochs": 0}, ValueError, "epochs: must be 1 or more, got 0"),
        ({"data": [1], "every": 1.5}, TypeError, "every: expected an int, got 1.5"),
        ({"data": []}, ValueError, "data: must have at least one batch"),
        ({"data": 3}, TypeError, "data: expected an iterable"),
        ({"data": (np.ones(3), np.ones(3))}, TypeError, "data: expected an iterable of batches, got tuple"),
        ({"data": iter([1]), "epochs": 2}, ValueError, "epochs: must be 1 for an iterator"),
        ({"steps": 1, "checkpoints": "runs"}, TypeError, "checkpoints: expected an nn.Checkpointer"),
        ({"steps": 1, "callbacks": [3]}, TypeError, "callbacks"),
        ({"steps": 1, "evaluate": lambda: 0.5}, TypeError, "evaluate: expected numbers by name"),
        ({"steps": 1, "evaluate": lambda: {"loss": 1}}, ValueError, "choose another name, such as 'val_loss'"),
    ],
)  # fmt: skip
def test_what_cannot_be(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        nn.fit(lambda *_: 0.5, **options)
