"""Modules of nnabla's that programs of training import: monitors, data, images, schedules, extensions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nngrad as nn
import nngrad.nnabla.utils
from nngrad.nnabla import monitor
from nngrad.nnabla.ext_utils import get_extension_context, import_extension_module, list_extensions
from nngrad.nnabla.utils import data_iterator as iterators
from nngrad.nnabla.utils import learning_rate_scheduler as schedules
from nngrad.nnabla.utils.data_source import DataSource
from nngrad.nnabla.utils.data_source_implements import CacheDataSource, CsvDataSource, SimpleDataSource
from nngrad.nnabla.utils.data_source_loader import load
from nngrad.nnabla.utils.image_utils import imread, imsave


def _square(i: int) -> tuple[Any, ...]:
    return np.array([i], "f"), np.int32(i * i)


# ---------------------------------------------------------------- batches


@given(
    size=st.integers(1, 9), batch=st.integers(1, 5), shuffle=st.booleans(), memory=st.booleans(), files=st.booleans(),
    thread=st.booleans(),
)  # fmt: skip
def test_each_epoch_has_each_example_once(
    size: int, batch: int, shuffle: bool, memory: bool, files: bool, thread: bool
) -> None:
    rng = np.random.RandomState(0)
    with iterators.data_iterator_simple(
        _square, size, batch, shuffle, rng, memory, with_file_cache=files, use_thread=thread
    ) as batches:
        assert (batches.size, batches.batch_size, list(batches.variables)) == (size, batch, ["x0", "x1"])
        seen: list[int] = []
        for _ in range(4 * size):
            x, y = batches.next()
            assert x.shape == (batch, 1) and x.dtype == np.float32 and y.dtype == np.int32
            np.testing.assert_array_equal(x[:, 0] ** 2, y)
            seen += x[:, 0].astype(int).tolist()
            assert batches.epoch == len(seen) // size and batches.position == len(seen) % size
        for start in range(0, len(seen) - size + 1, size):
            assert sorted(seen[start : start + size]) == list(range(size))
            assert shuffle or seen[start : start + size] == list(range(size))


def test_orders_follow_from_the_generator_alone() -> None:
    def orders(thread: bool) -> list[int]:
        rng = np.random.RandomState(5)
        batches = iterators.data_iterator_simple(_square, 20, 6, True, rng, use_thread=thread)
        return [int(i) for _ in range(12) for i in next(batches)[0][:, 0]]

    assert orders(True) == orders(False)
    assert orders(True)[:20] != orders(True)[20:40]  # epochs are in different orders


def test_a_source_of_ones_own_as_nnabla_s_examples_write_it() -> None:
    class Digits(DataSource):
        def __init__(self, shuffle: bool = False, rng: Any = None) -> None:
            super().__init__(shuffle=shuffle, rng=rng)
            self._images = np.arange(5 * 4).reshape(5, 1, 2, 2)
            self._size, self._variables = 5, ("x", "y")
            self.reset()

        def reset(self) -> None:
            self._indexes = self._rng.permutation(self._size) if self._shuffle else np.arange(self._size)
            super().reset()

        def _get_data(self, position: int) -> tuple[Any, Any]:
            i = self._indexes[position]
            return self._images[i], np.array([i])

    calls = []
    with iterators.data_iterator(
        Digits(shuffle=True), 5, epoch_begin_callbacks=[lambda i: calls.append(("begin", i))],
        epoch_end_callbacks=[lambda i: calls.append(("end", i))], use_thread=False,
    ) as batches:  # fmt: skip
        for _ in range(2):
            x, y = batches.next()
            assert sorted(y[:, 0]) == [0, 1, 2, 3, 4]
            np.testing.assert_array_equal(x[:, 0, 0, 0], 4 * y[:, 0])
    assert calls == [("begin", 0), ("end", 0), ("begin", 1), ("end", 1), ("begin", 2)]
    with pytest.raises(RuntimeError, match="closed"):
        batches.next()


def test_errors_of_a_source_come_to_the_caller() -> None:
    def broken(i: int) -> tuple[Any, ...]:
        return (np.zeros(1),) if i < 2 else (1 / 0,)

    batches = iterators.data_iterator_simple(broken, 4, 2)
    batches.next()
    with pytest.raises(ZeroDivisionError):
        batches.next()
    with pytest.raises(ValueError, match="batch_size: must be 1 or more"):
        iterators.data_iterator_simple(_square, 4, 0)
    with pytest.raises(ValueError, match="must have at least one example"):
        iterators.data_iterator(SimpleDataSource(_square, 0), 1)


def test_parts_of_the_examples() -> None:
    batches = iterators.data_iterator_simple(_square, 7, 3)
    for pos, expected in enumerate([[0, 1, 2], [4, 5, 6]]):
        part = batches.slice(None, num_of_slices=2, slice_pos=pos)
        assert part.size == 3
        assert part.next()[0][:, 0].tolist() == expected
    assert batches.slice(None, slice_start=4, slice_end=7).next()[1].tolist() == [16, 25, 36]
    with pytest.raises(ValueError, match="pass either num_of_slices and slice_pos"):
        batches.slice(None, num_of_slices=2)


def test_rows_of_csv_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(2))
    imsave(tmp_path / "b.png", np.full((2, 2), 255, np.uint8))
    (tmp_path / "matrix.csv").write_text("1,2\n3,4\n")
    rows = ["x__0:width,x__1:height,y:label,z:file", "1,2.5,3,a.npy", "4,5,6,b.png", "7,8,9,matrix.csv"]
    (tmp_path / "data.csv").write_text("\n".join(rows))
    source = CsvDataSource(tmp_path / "data.csv", normalize=True)
    assert source.variables == ("x", "y", "z") and source.size == 3
    x, y, z = source._get_data(0)
    assert x == [1, 2.5] and y == [3]
    np.testing.assert_array_equal(z, np.eye(2))
    np.testing.assert_array_equal(source._get_data(1)[2], np.ones((1, 2, 2)))
    np.testing.assert_array_equal(source._get_data(2)[2], [[1, 2], [3, 4]])
    (tmp_path / "plain.csv").write_text("x,y\n0,1\n2,3\n")
    both = iterators.data_iterator_csv_dataset(tmp_path / "plain.csv", 2, shuffle=False).next()
    assert [column.tolist() for column in both] == [[[0], [2]], [[1], [3]]]
    (tmp_path / "short.csv").write_text("x,y\n1\n")
    with pytest.raises(ValueError, match="row 2 has 1 columns, but the header has 2"):
        CsvDataSource(tmp_path / "short.csv")
    with pytest.raises(ValueError, match="must be a local path"):
        CsvDataSource("https://example.com/data.csv")
    with pytest.raises(ValueError, match=r"ext: must be one of .*, got '\.wav'"):
        load(".wav")


def test_caches_in_files_are_read_later(tmp_path: Path) -> None:
    iterators.data_iterator_simple(_square, 205, 4, with_file_cache=True, cache_dir=tmp_path).close()
    index = (tmp_path / "cache_index.csv").read_text().split()
    assert [line.split(",")[1] for line in index] == ["100", "100", "5"]
    assert index[2].startswith("cache_00000200_00000204.npy")
    kept = CacheDataSource(tmp_path)
    assert kept.variables == ("x0", "x1") and [int(kept._get_data(i)[1]) for i in (0, 104, 204)] == [0, 104**2, 204**2]
    shuffled = iterators.data_iterator_cache(tmp_path, 205, True, np.random.RandomState(0), normalize=False)
    first = shuffled.next()[0][:, 0]
    assert first.tolist() != list(range(205)) and sorted(first) == list(range(205))


# ---------------------------------------------------------------- monitors


def test_series_are_means_of_intervals(tmp_path: Path) -> None:
    series = monitor.MonitorSeries("Training loss", monitor.Monitor(tmp_path / "run"), interval=2, verbose=False)
    for i in range(5):
        series.add(i, np.array([i * 1.5]))
    text = (tmp_path / "run" / "Training-loss.series.txt").read_text()
    assert text == "1 0.75\n3 3.75\n"
    with pytest.raises(ValueError, match="interval: must be 1 or more"):
        monitor.MonitorSeries("loss", interval=0)


def test_pictures(tmp_path: Path) -> None:
    images = np.zeros((3, 1, 2, 2))
    images[1] = [[0, 1], [2, 4]]
    folder = monitor.Monitor(tmp_path)
    each = monitor.MonitorImage("real images", folder, interval=5, verbose=False, num_images=2)
    tiles = monitor.MonitorImageTile("tiles", folder, interval=1, verbose=False)
    for i in range(6):
        each.add(i, images)
    tiles.add(7, nn.Variable.from_numpy_array(images))
    names = ["000000-000.png", "000000-001.png", "000004-000.png", "000004-001.png"]
    assert sorted(path.name for path in (tmp_path / "real-images").iterdir()) == names
    np.testing.assert_array_equal(imread(tmp_path / "real-images" / "000004-001.png"), [[0, 64], [128, 255]])
    tile = imread(tmp_path / "tiles" / "000007.png")
    assert tile.shape == (6, 6) and tile[:2, 3:5].tolist() == [[0, 64], [128, 255]] and tile.sum() == 447
    colours = np.stack([np.full((2, 2), value) for value in (0.0, 1.0, 0.5, 9.0)])[None]
    monitor.MonitorImage("rgb", folder, verbose=False, normalize_method=np.array).add(0, colours[:, :4] / [[[[1]]]])
    assert imread(tmp_path / "rgb" / "000000-000.png")[0, 0].tolist() == [0, 255, 128]
    with pytest.raises(ValueError, match=r"data: expected shape \(N, C, H, W\)"):
        monitor.tile_images(images[0])


def test_plots_of_files(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    (tmp_path / "a.series.txt").write_text("0 1.5\n9 0.5\n")
    (tmp_path / "a.timer.txt").write_text("9 2.0 10 2.0\n19 4.0 10 6.0\n")
    (line,) = monitor.plot_series(tmp_path / "a.series.txt", {"label": "a"})
    assert line.get_ydata().tolist() == [1.5, 0.5] and line.get_label() == "a"
    (line,) = monitor.plot_time_elapsed(tmp_path / "a.timer.txt", elapsed=True, unit="m")
    assert line.get_ydata().tolist() == [2 / 60, 6 / 60]
    with pytest.raises(ValueError, match="unit must be one of"):
        monitor.plot_time_elapsed(tmp_path / "a.timer.txt", unit="w")
    pyplot.close("all")


# ---------------------------------------------------------------- images


@given(st.booleans(), st.sampled_from([(4, 3), (4, 3, 3), (4, 3, 4)]), st.booleans())
def test_images_are_read_as_they_were_written(wide: bool, shape: tuple[int, ...], first: bool) -> None:
    import io

    wide = wide and len(shape) == 2
    dtype = np.uint16 if wide else np.uint8
    image = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    given_as = image.transpose(2, 0, 1) if first and len(shape) == 3 else image
    file = io.BytesIO()
    file.name = "a.png"
    imsave(file, given_as, channel_first=first, as_uint16=wide)
    file.seek(0)
    read = imread(file, channel_first=first, as_uint16=wide)
    np.testing.assert_array_equal(read, given_as)
    assert read.dtype == dtype


# ---------------------------------------------------------------- schedules and extensions


@pytest.mark.parametrize(("schedule", "rates"), [
    (schedules.PolynomialScheduler(2.0, 10, 2.0), {0: 2.0, 5: 0.5, 10: 0.0}),
    (schedules.CosineScheduler(2.0, 10), {0: 2.0, 5: 1.0, 10: 0.0}),
    (schedules.ExponentialScheduler(2.0, 0.5, 3), {0: 2.0, 2: 2.0, 3: 1.0, 6: 0.5}),
    (schedules.StepScheduler(2.0, 0.1, [3, 5]), {2: 2.0, 3: 0.2, 4: 0.2, 5: 0.02}),
    (schedules.LinearWarmupScheduler(schedules.StepScheduler(2.0, 0.5, [2]), 4), {0: 0.5, 1: 1.0, 2: 0.75, 3: 1.0}),
])  # fmt: skip
def test_schedules(schedule: schedules.BaseLearningRateScheduler, rates: dict[int, float]) -> None:
    for i, rate in rates.items():
        assert schedule.get_learning_rate(i) == pytest.approx(rate, abs=1e-15)


def test_extensions_are_jax_s_platforms() -> None:
    assert {"cpu", "cudnn", "cuda"} <= set(list_extensions())
    cpu = import_extension_module("cpu")
    assert cpu.context(device_id=0) == get_extension_context("cpu") and cpu.get_devices()[0] == "0"
    assert cpu.get_device_count() == len(cpu.get_devices())
    cpu.device_synchronize("0")
    cpu.clear_memory_cache()
    with pytest.raises(ImportError, match=r"ext_name: must be one of cpu.*, got 'openvino'"):
        import_extension_module("openvino")
    assert import_extension_module("tpu").get_device_count() == 0


# ---------------------------------------------------------------- doors, and names that lead on


def test_modules_have_what_nnablas_have() -> None:
    program = """
import nngrad.nnabla as nn
import nngrad.nnabla.initializer as I
from nngrad.nnabla.backward_functions import register, registry, show_registry
from nngrad.nnabla.function import Function, PythonFunction
from nngrad.nnabla.logger import logger
from nngrad.nnabla.parameter import get_parameter_or_create, load_parameters, save_parameters
from nngrad.nnabla.random import prng
from nngrad.nnabla.solver import Solver
"""
    given: dict[str, Any] = {}
    exec(program, given)
    assert given["logger"] is given["nn"].logger and given["Solver"] is given["nn"].solver.Solver is nn.solvers.Solver
    assert given["registry"] is nn.registry and given["register"].__name__ == "register"
    assert given["Function"] is nn.Function and given["PythonFunction"] is nn.nnabla.PythonFunction
    assert given["save_parameters"] is nn.parameter.save_parameters is nn.save_parameters
    assert given["load_parameters"] is nn.load_parameters
    assert given["I"].random is nn.random


def test_prng_follows_from_the_seed() -> None:
    def draws() -> Any:
        nn.seed(7)
        kept = nn.random.prng
        return np.stack([nn.random.prng.rand(3), nn.random.prng.rand(3), kept.rand(3), kept.rand(3)])

    first = draws()
    np.testing.assert_array_equal(first, draws())
    assert len(np.unique(first)) == first.size
    with pytest.raises(AttributeError, match="no attribute 'reseed'"):
        nn.random.__getattr__("reseed")


PAGE = "docs/from_nnabla.md"


@pytest.mark.parametrize(("program", "said"), [
    ("import nngrad.nnabla.models.imagenet", ["nnabla.models", "cannot download", PAGE]),
    ("from nngrad.models.imagenet import ResNet18", ["nnabla.models", "cannot download", PAGE]),
    ("from nngrad.nnabla.experimental.viewers import SimpleGraph", ["nnabla.experimental", "`nn.draw`", PAGE]),
    ("import nngrad.nnabla.utils.converter.commands", ["nnabla.utils.converter", PAGE]),
    ("from nngrad.nnabla.utils import audio_utils", ["nnabla.utils.audio_utils", PAGE]),
    ("from nngrad import prefer_cached_array", ["nnabla.prefer_cached_array", "JAX's", PAGE]),
    ("from nngrad.variable import Variable", ["nnabla.variable is nn.Variable here", PAGE]),
    ("from nngrad import tensor", ["torch.tensor is nn.Variable.from_numpy_array(array) here"]),
    ("from nngrad.functions import silu", ["torch.nn.functional.silu is F.swish here"]),
    ("import nngrad.auto_forward", ["is a function, not a module", "from nngrad import auto_forward"]),
])  # fmt: skip
def test_imports_of_what_is_not_here_lead_on(program: str, said: list[str]) -> None:
    with pytest.raises(ImportError) as caught:
        exec(program, {})
    assert not [part for part in said if part not in str(caught.value)], str(caught.value)


def test_attributes_that_are_not_here_lead_on() -> None:
    for owner, name, said in [
        (nn, "prefer_cached_array", "JAX's"), (nn, "experimental", "nn.train_step"),
        (nngrad.nnabla.utils, "profiler", "nn.hooks.TimerHook"),
        *([(nn.Variable(()), "info", "`name`")] if sys.version_info >= (3, 12) else []),  # else Python's own message
    ]:  # fmt: skip
        with pytest.raises(AttributeError, match=PAGE) as caught:
            getattr(owner, name)
        assert said in str(caught.value) and not hasattr(owner, name)
