"""The four networks of the classic convnet benchmark (github.com/soumith/convnet-benchmarks).

As there, they end in scores, and have neither dropout, nor local response normalisation, nor auxiliary classifiers.
Each is a function from images, (batch, 3, size, size), to the scores of 1000 classes, (batch, 1000); its parameters are
those of the present scope. Time one:

    print(nn.timing.measure(alexnet_loss))
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad import Variable, parameter_scope

CLASSES = 1000


def alexnet(x: Variable) -> Variable:
    """AlexNet in the version of Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014."""
    h = maximum(convolved(x, 64, 11, "conv1", pad=2, stride=4), 3, 2)
    h = maximum(convolved(h, 192, 5, "conv2", pad=2), 3, 2)
    h = convolved(h, 384, 3, "conv3", pad=1)
    h = convolved(h, 256, 3, "conv4", pad=1)
    h = maximum(convolved(h, 256, 3, "conv5", pad=1), 3, 2)
    return classified(h, 4096, 4096)


def overfeat(x: Variable) -> Variable:
    """OverFeat, the fast model: Sermanet et al., "OverFeat", ICLR 2014, table 1."""
    h = maximum(convolved(x, 96, 11, "conv1", stride=4), 2, 2)
    h = maximum(convolved(h, 256, 5, "conv2"), 2, 2)
    h = convolved(h, 512, 3, "conv3", pad=1)
    h = convolved(h, 1024, 3, "conv4", pad=1)
    h = maximum(convolved(h, 1024, 3, "conv5", pad=1), 2, 2)
    return classified(h, 3072, 4096)


def vgg_a(x: Variable) -> Variable:
    """VGG's configuration A, of 11 layers: Simonyan and Zisserman, "Very deep convolutional networks for large-scale
    image recognition", ICLR 2015, table 1."""
    h = maximum(convolved(x, 64, 3, "conv1", pad=1), 2, 2)
    h = maximum(convolved(h, 128, 3, "conv2", pad=1), 2, 2)
    h = convolved(h, 256, 3, "conv3_1", pad=1)
    h = maximum(convolved(h, 256, 3, "conv3_2", pad=1), 2, 2)
    h = convolved(h, 512, 3, "conv4_1", pad=1)
    h = maximum(convolved(h, 512, 3, "conv4_2", pad=1), 2, 2)
    h = convolved(h, 512, 3, "conv5_1", pad=1)
    h = maximum(convolved(h, 512, 3, "conv5_2", pad=1), 2, 2)
    return classified(h, 4096, 4096)


def googlenet(x: Variable) -> Variable:
    """GoogLeNet, the first Inception network: Szegedy et al., "Going deeper with convolutions", CVPR 2015, table 1."""
    h = halved(convolved(x, 64, 7, "conv1", pad=3, stride=2))
    h = convolved(h, 64, 1, "conv2_reduce")
    h = halved(convolved(h, 192, 3, "conv2", pad=1))
    h = inception(h, "3a", 64, (96, 128), (16, 32), 32)
    h = halved(inception(h, "3b", 128, (128, 192), (32, 96), 64))
    h = inception(h, "4a", 192, (96, 208), (16, 48), 64)
    h = inception(h, "4b", 160, (112, 224), (24, 64), 64)
    h = inception(h, "4c", 128, (128, 256), (24, 64), 64)
    h = inception(h, "4d", 112, (144, 288), (32, 64), 64)
    h = halved(inception(h, "4e", 256, (160, 320), (32, 128), 128))
    h = inception(h, "5a", 256, (160, 320), (32, 128), 128)
    h = inception(h, "5b", 384, (192, 384), (48, 128), 128)
    h = F.average_pooling(h, (7, 7), (1, 1))
    return PF.affine(h, CLASSES, name="classifier")


def inception(
    x: Variable, name: str, ones: int, threes: tuple[int, int], fives: tuple[int, int], pooled: int
) -> Variable:
    """Four branches side by side: 1x1, 3x3 and 5x5 convolutions, and a maximum; all but the first with a 1x1 one.

    Args:
        x: (batch, channels, height, width).
        name: Name of the module.
        ones: Channels of the 1x1 branch.
        threes: Channels of the reduction before the 3x3 convolution, and of that.
        fives: Likewise of the 5x5 one.
        pooled: Channels of the projection behind the maximum.
    """
    with parameter_scope(f"inception_{name}"):
        one = convolved(x, ones, 1, "1x1")
        three = convolved(convolved(x, threes[0], 1, "3x3_reduce"), threes[1], 3, "3x3", pad=1)
        five = convolved(convolved(x, fives[0], 1, "5x5_reduce"), fives[1], 5, "5x5", pad=2)
        pool = convolved(maximum(x, 3, 1, pad=1), pooled, 1, "pool_proj")
        return F.concatenate(one, three, five, pool, axis=1)


def convolved(x: Variable, maps: int, kernel: int, name: str, pad: int = 0, stride: int = 1) -> Variable:
    """A square convolution with a bias, and the rectifier."""
    return F.relu(PF.convolution(x, maps, (kernel, kernel), (pad, pad), (stride, stride), name=name))


def maximum(x: Variable, kernel: int, stride: int, pad: int = 0) -> Variable:
    """The maximum over square windows."""
    return F.max_pooling(x, (kernel, kernel), (stride, stride), pad=(pad, pad))


def halved(x: Variable) -> Variable:
    """The maximum over 3x3 windows with stride 2, whose last row and column reach over the end."""
    return F.max_pooling(x, (3, 3), (2, 2), ignore_border=False)


def classified(x: Variable, *hidden: int) -> Variable:
    """Fully connected layers of these sizes, each with the rectifier, and the scores."""
    for i, size in enumerate(hidden):
        x = F.relu(PF.affine(x, size, name=f"hidden{i + 1}"))
    return PF.affine(x, CLASSES, name="classifier")


class Network(NamedTuple):
    """A network, and what it is applied to."""

    title: str
    scores: Callable[[Variable], Variable]
    """From images to the scores of the classes."""
    size: int
    """Height and width of the images."""
    classic_batch: int
    """Images in a batch of the classic benchmark."""


NETWORKS = {
    "alexnet": Network("AlexNet", alexnet, 224, 128),
    "overfeat": Network("OverFeat (fast)", overfeat, 231, 128),
    "vgg_a": Network("VGG-A", vgg_a, 224, 64),
    "googlenet": Network("GoogLeNet", googlenet, 224, 128),
}
"""The networks by name."""


def network_of(name: str) -> Network:
    """The network `name`.

    Raises:
        ValueError: There is none of that name.
    """
    if name not in NETWORKS:
        raise ValueError(f"name: {name!r} is not one of {', '.join(map(repr, NETWORKS))}")
    return NETWORKS[name]


def loss_of(name: str, batch_size: int) -> Callable[[], Variable]:
    """A function that builds the loss of a network anew at each call, for `nn.timing.measure`.

    The loss is the mean cross entropy on one batch of random images and labels, which stays the same. The parameters
    are made at the first call; the registry of parameters does not hold them.

    Args:
        name: 'alexnet', 'overfeat', 'vgg_a' or 'googlenet'.
        batch_size: Number of images.

    Raises:
        TypeError: `batch_size` is no int.
        ValueError: There is no network of that name, or `batch_size` is not positive.
    """
    network = network_of(name)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int):
        raise TypeError(f"batch_size: expected an int, got {batch_size!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size: must be 1 or more, got {batch_size}")
    scope: OrderedDict[str, Variable] = OrderedDict()

    @functools.cache
    def batch() -> tuple[Variable, Variable]:
        rng = np.random.default_rng(0)
        images = rng.standard_normal((batch_size, 3, network.size, network.size), np.float32)
        labels = rng.integers(0, CLASSES, (batch_size, 1), np.int32)
        return Variable.from_numpy_array(images), Variable.from_numpy_array(labels)

    def loss() -> Variable:
        x, t = batch()
        with parameter_scope("", scope):
            return F.mean(F.softmax_cross_entropy(network.scores(x), t))

    return loss


BATCH = 16
"""Images in a batch of the losses below."""
alexnet_loss, overfeat_loss, vgg_a_loss, googlenet_loss = [loss_of(name, BATCH) for name in NETWORKS]
