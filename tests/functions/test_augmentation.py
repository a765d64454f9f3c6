"""Random changes of samples: each sample its own, one draw for the forward and all gradients, and what they change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad import random
from nngrad.graph import Variable
from tests.refusals import refused

from_ = Variable.from_numpy_array
IMAGES = np.arange(2 * 200 * 6 * 5, dtype=np.float32).reshape(200, 2, 6, 5)


def test_crops_are_windows_at_all_places() -> None:
    random.seed(0)
    y = F.random_crop(IMAGES, shape=(4, 3)).d
    assert y.shape == (200, 2, 4, 3)
    place = y[:, 0, 0, 0] - IMAGES[:, 0, 0, 0]
    np.testing.assert_array_equal(y - y[:, :, :1, :1], (IMAGES - IMAGES[:, :, :1, :1])[:, :, :4, :3])
    assert set(place) == {5 * i + j for i in range(3) for j in range(3)}
    assert F.random_crop(IMAGES[0], shape=(2, 2), base_axis=0).d.shape == (2, 2, 2)
    assert F.random_crop(IMAGES, shape=(2, 2), base_axis=2).d.shape == (200, 2, 2, 2)


@pytest.mark.parametrize("mode", ["nearest", "reflect", "constant"])
def test_shifts_go_as_far_as_they_may(mode: str) -> None:
    random.seed(0)
    line = np.arange(1.0, 6.0, dtype=np.float32)
    y = F.random_shift(np.tile(line, (100, 1)), shifts=(2,), border_mode=mode, constant_value=9).d
    margin = {"nearest": "edge"}.get(mode, mode)
    padded = np.pad(line, 2, mode=margin, **({"constant_values": 9} if mode == "constant" else {}))  # type: ignore[call-overload]
    assert {tuple(row) for row in y} == {tuple(padded[i : i + 5]) for i in range(5)}


def test_flips_are_of_half_of_the_samples() -> None:
    random.seed(0)
    y = F.random_flip(IMAGES, axes=(2, 3)).d
    kinds = [IMAGES, IMAGES[:, :, ::-1], IMAGES[..., ::-1], IMAGES[:, :, ::-1, ::-1]]
    same = np.array([(y == kind).all(axis=(1, 2, 3)) for kind in kinds])
    assert (same.sum(0) == 1).all() and (same.sum(1) > 30).all()


@pytest.mark.parametrize("channel_last", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_erasures_are_rectangles_of_noise(share: bool, channel_last: bool) -> None:
    random.seed(0)
    x = np.full((100, 20, 30, 2) if channel_last else (100, 2, 20, 30), -1.0, np.float32)
    y = F.random_erase(x, prob=0.7, replacements=(1.0, 3.0), share=share, channel_last=channel_last).d
    erased = np.moveaxis(y, -1, 1) != -1 if channel_last else y != -1
    areas = erased.sum(axis=(2, 3))
    # A rectangle: as many rows times as many columns as there are erased elements.
    np.testing.assert_array_equal(erased.any(3).sum(2) * erased.any(2).sum(2), areas)
    assert abs((areas > 0).mean() - 0.7) < 0.12 and areas.max() <= 0.4 * 600
    assert y[y != -1].min() >= 1 and 2.9 < y.max() <= 3
    assert (erased[:, 0] == erased[:, 1]).all() == share


@pytest.mark.parametrize("change", [
    lambda x: F.random_crop(x, shape=(3, 3)), lambda x: F.random_flip(x), lambda x: F.random_shift(x, shifts=(1, 1)),
    lambda x: F.random_erase(x, prob=1.0, replacements=(0.0, 0.0)),
    lambda x: F.image_augmentation(x, (2, 4, 4), (1, 1), 0.8, 1.2, 0.3, 1.2, 0.1),
])
def test_gradients_of_every_order_see_the_same_draw(change: Any) -> None:
    x = from_(np.random.default_rng(0).standard_normal((3, 2, 6, 5)), need_grad=True)
    y = change(x)
    (g,) = nn.grad(F.sum(y**3), x)
    (gg,) = nn.grad(F.sum(g * x), x)
    nn.forward_all([y, g, gg])
    # All are linear in x: <x, g> = 3 sum(y^3), and the next derivative of a form of degree 3 is 3 g.
    np.testing.assert_allclose(np.sum(x.d * g.d), 3 * np.sum(y.d**3), rtol=1e-6)
    np.testing.assert_allclose(gg.d, 3 * g.d, rtol=1e-6, atol=1e-6)


def test_images_without_changes_stay_and_full_turns_come_back() -> None:
    x = IMAGES[:3]
    np.testing.assert_array_equal(F.image_augmentation(x).d, x)
    np.testing.assert_array_equal(F.image_augmentation(x, angle=0.0, flip_lr=True).d[:, :, :, 2], x[:, :, :, 2])
    y = F.image_augmentation(x.astype(np.int32), pad=(2, 2), shape=(2, 10, 9))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.d[:, :, 2:-2, 2:-2], x, rtol=1e-6)
    assert (y.d[:, :, :2] == 0).all()
    z = F.image_augmentation(np.ones((1, 1, 8, 8), np.float32), (1, 4, 4), min_scale=2.0, max_scale=2.0).d
    np.testing.assert_allclose(z, 1)


def test_values_of_images() -> None:
    random.seed(0)
    x = np.full((50, 3, 2, 2), 2.0, np.float32)
    y = F.image_augmentation(x, contrast=2.0, contrast_center=1.0, brightness=0.1, brightness_each=True).d
    assert (y == y[:, :, :1, :1]).all() and (np.ptp(y[:, :, 0, 0], axis=1) > 0).all()
    assert 1.4 < y.min() < 1.6 and 2.7 < y.max() < 3.1
    noisy = F.image_augmentation(x, noise=0.5).d - x
    assert abs(noisy.std() - 0.5) < 0.05


def test_adversarial_noise() -> None:
    x, w = from_(np.array([[3.0, 4.0], [0.0, 0.0]]), need_grad=True), from_(np.ones((2, 2)), need_grad=True)
    y = F.vat_noise(x, w, eps=0.5)
    np.testing.assert_allclose(y.d, [[0.3, 0.4], [0, 0]])
    gx, gw = nn.grad(F.sum(y**2), [x, w])
    np.testing.assert_allclose(gw.d, [[0.3, 0.4], [0, 0]])
    assert not gx.d.any()


def test_a_shape_with_one_row_stays() -> None:
    draws = (F.rand, F.randn, F.randint, F.rand_gamma, F.rand_beta, F.rand_binomial)
    ys = [draw(shape=shape) for draw, shape in zip(draws, [(1, 100), [1, 100]] * 3, strict=True)]
    nn.forward_all(ys)
    for y in ys:
        assert y.shape == y.d.shape == y.data.data.shape == (1, 100)
    with nn.auto_forward():
        assert F.rand(shape=[1, 100], seed=3).d.shape == (1, 100)


test_bad_arguments = refused([
    (lambda: F.random_crop(IMAGES, shape=(7, 3)), "^random_crop: shape must not exceed that of a sample"),
    (lambda: F.random_shift(IMAGES, shifts=(-1,)), r"^random_shift: shifts must be at most 3.*got \(-1,\)"),
    (lambda: F.random_flip(IMAGES, axes=0), "^random_flip: axes must be axes of a sample, 1 or above, got 0"),
    (lambda: F.random_erase(IMAGES[0]), "^random_erase: x must have three axes from base_axis"),
    (lambda: F.image_augmentation(IMAGES, shape=(1, 3, 3)), "^image_augmentation: shape .* with 2 channels as x has"),
    (lambda: F.vat_noise(IMAGES, IMAGES[0]), "^vat_noise: x and w must have the same shape"),
])
