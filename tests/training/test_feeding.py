"""nn.feed: batches, in their order, on the devices, from a position on."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S


def epoch(number: int) -> Iterator[Any]:
    """Five batches, other ones in each epoch."""
    rng = np.random.default_rng(number)
    for i in range(5):
        yield rng.normal(size=(2, 3)), {"number": np.array([number, i]), "name": f"{number}/{i}"}


def names(batches: Any) -> list[str]:
    return [batch[1]["name"] for batch in batches]


def test_batches_come_in_order_and_on_the_device() -> None:
    given = [batch for number in range(2) for batch in epoch(number)]
    fed = list(nn.feed(epoch, epochs=2))
    assert names(fed) == names(given)
    for (x, facts), (y, others) in zip(fed, given, strict=True):
        assert isinstance(x, jax.Array) and x.dtype == np.float64 and np.array_equal(x, y)
        assert np.array_equal(facts["number"], others["number"])
    assert names(nn.feed(given)) == names(nn.feed(iter(given))) == names(given)
    assert names(nn.feed(given[:2], epochs=3)) == names(given[:2]) * 3


def test_memory_that_is_written_again_does_no_harm() -> None:
    def batches() -> Iterator[np.ndarray]:
        array = np.empty(100_000, np.float32)
        for i in range(8):
            array[:] = i
            yield array

    assert [set(np.asarray(batch)) for batch in nn.feed(batches())] == [{i} for i in range(8)]


@pytest.mark.parametrize("kind", ["function", "list", "iterator"])
def test_the_position_is_that_of_what_was_taken(kind: str) -> None:
    def make() -> Any:
        if kind == "function":
            return nn.feed(epoch, epochs=2)
        if kind == "list":
            return nn.feed(list(epoch(0)), epochs=2)
        return nn.feed(batch for number in range(2) for batch in epoch(number))

    all_names = names(make())
    for at in (0, 1, 4, 5, 7, 10):
        feed = make()
        assert names(next(feed) for _ in range(at)) == all_names[:at]
        state = feed.get_state()
        feed.close()
        again = make()
        again.set_state(state)
        assert again.get_state() == state
        assert names(again) == all_names[at:]
        if kind != "iterator":
            again.set_state(state)
            assert names(again) == all_names[at:]
            assert names(feed) == all_names[at:]  # which was closed, and goes on
        elif at:
            with pytest.raises(RuntimeError, match="the feed was closed"):
                next(feed)


def test_positions_that_do_not_fit() -> None:
    feed = nn.feed(iter(list(epoch(0))))
    next(feed)
    with pytest.raises(ValueError, match="batches were already taken from the iterator"):
        feed.set_state({"epoch": 0, "batches": 3})
    with pytest.raises(ValueError, match="expected 'epoch' and 'batches' as keys, got"):
        feed.set_state({"grain": None})
    feed.close()
    short = nn.feed(epoch)
    short.set_state({"epoch": 0, "batches": 9})
    with pytest.raises(ValueError, match="cannot resume after 9 batches of epoch 0: the input has only 5"):
        next(short)


def test_errors_come_out_of_the_loop_with_their_traceback() -> None:
    def broken_source() -> Iterator[np.ndarray]:
        yield np.ones(2)
        raise KeyError("the file")

    feed = nn.feed(broken_source())
    next(feed)
    with pytest.raises(KeyError, match="the file") as error:
        next(feed)
    assert "broken_source" in "".join(traceback.format_tb(error.value.__traceback__))
    with pytest.raises(RuntimeError, match="its iterator cannot go back"):
        next(feed)
    with pytest.raises(ValueError, match="no batches in epoch 0, and the number of epochs is unlimited"):
        next(nn.feed([], epochs=None))
    assert list(nn.feed([])) == []


def test_what_a_source_holds_is_let_go_of() -> None:
    closed = []

    def held() -> Iterator[np.ndarray]:
        try:
            while True:
                yield np.ones(2)
        finally:
            closed.append(True)

    for end in (lambda feed: feed.close(), lambda feed: None):
        feed = nn.feed(lambda _: held())
        next(feed)
        end(feed)
        del feed
        gc.collect()
    assert closed == [True, True]
    with nn.feed(lambda _: held()) as feed:
        next(feed)
    assert closed == [True] * 3


def test_arguments() -> None:
    for arguments, error, message in [
        (((), 0), ValueError, "epochs: must be 1 or more, got 0"),
        (((), 1.5), TypeError, r"epochs: expected an int, got 1\.5"),
        ((3,), TypeError, "source: expected an iterable, a function of the epoch, or a loader or data set of grain"),
        ((iter([]), 2), ValueError, "epochs: must be 1 for an iterator, .* got 2"),
    ]:
        with pytest.raises(error, match=message):
            nn.feed(*arguments)


def grain_sources() -> list[Callable[[], Any]]:
    import grain

    def loader() -> Any:
        sampler = grain.samplers.IndexSampler(
            40, shard_options=grain.sharding.ShardByJaxProcess(), shuffle=True, num_epochs=1, seed=0
        )
        return grain.DataLoader(data_source=list(range(40)), sampler=sampler, worker_count=0,
                                operations=[grain.transforms.Batch(4)])

    def dataset() -> Any:
        return grain.MapDataset.range(40).seed(3).shuffle().batch(4).repeat(2)

    return [loader, dataset, lambda: dataset().to_iter_dataset()]


def test_grain_goes_to_its_position_itself(tmp_path: Path) -> None:
    for i, make in enumerate(grain_sources()):
        feed = nn.feed(make())
        taken = [np.asarray(next(feed)) for _ in range(3)]
        nn.clear_parameters()
        nn.parameter.get_parameter_or_create("w", (2,))
        nn.Checkpointer(tmp_path / str(i), feed=feed).save(3)
        rest = [np.asarray(batch) for batch in feed]
        again = nn.feed(make())
        assert nn.Checkpointer(tmp_path / str(i), feed=again).restore() == 3
        assert np.array_equal(rest, [np.asarray(batch) for batch in again])
        seen = np.concatenate([*taken, *rest]).ravel()
        assert sorted(seen) == sorted([*range(40)] * (1 if i == 0 else 2))
        with pytest.raises(ValueError, match="epochs: must be 1 for grain"):
            nn.feed(make(), epochs=2)
        with pytest.raises(ValueError, match="expected 'grain' as keys"):
            nn.feed(make()).set_state({"epoch": 0, "batches": 1})
    nn.clear_parameters()


def test_steps_take_what_is_fed() -> None:
    """Also in dtypes that the step converts."""
    results = []
    for wrapped in (list, nn.feed):
        w = nn.Variable.from_numpy_array(np.ones((3, 1), np.float32))
        w.need_grad = True
        x, n = nn.Variable((2, 3)), nn.Variable((2, 1), dtype="int32")
        step = nn.train_step(F.mean((F.affine(x, w) - n * 0.5) ** 2), [w], S.Sgd(0.1), inputs=[x, n])
        batches = [(np.random.default_rng(i).normal(size=(2, 3)), np.full((2, 1), i)) for i in range(4)]
        results.append([float(step(*batch)) for batch in wrapped(batches)] + w.d.ravel().tolist())
    assert results[0] == results[1]
