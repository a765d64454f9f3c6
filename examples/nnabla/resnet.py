"""A residual network: batch normalisation in both modes, a schedule of rates, parameters loaded."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S
from nngrad.nnabla.monitor import Monitor, MonitorSeries
from nngrad.nnabla.utils.learning_rate_scheduler import CosineScheduler

steps, batch = 8, 6
history = {"loss": [], "evaluation loss": [], "loss after loading": []}


def unit(x, scope, test):
    """Two convolutions beside the identity."""
    c = x.shape[1]
    with nn.parameter_scope(scope):
        with nn.parameter_scope("conv1"):
            h = PF.convolution(x, c // 2, (1, 1), with_bias=False)
            h = F.relu(PF.batch_normalization(h, decay_rate=0.8, batch_stat=not test))
        with nn.parameter_scope("conv2"):
            h = PF.convolution(h, c, (3, 3), pad=(1, 1), with_bias=False)
            h = PF.batch_normalization(h, decay_rate=0.8, batch_stat=not test)
    return F.relu(F.add2(h, x, inplace=True), inplace=True)


def resnet(x, test=False):
    with nn.parameter_scope("conv1"):
        h = PF.convolution(x, 8, (3, 3), pad=(1, 1), with_bias=False)
        h = F.relu(PF.batch_normalization(h, decay_rate=0.8, batch_stat=not test))
    h = unit(h, "conv2", test)
    h = F.max_pooling(h, (2, 2))
    h = unit(h, "conv3", test)
    h = F.average_pooling(h, h.shape[2:])
    return PF.affine(h, 3, name="classifier")


def start(seed):
    rng = np.random.RandomState(seed)
    for name, w in sorted(nn.get_parameters().items()):
        if name.endswith("/W"):
            w.d = rng.randn(*w.shape) * np.sqrt(2 / np.prod(w.shape[1:]))


rng = np.random.RandomState(8)
centers = rng.randn(3, 3, 8, 8)


def draw():
    labels = rng.randint(0, 3, (batch, 1))
    return centers[labels[:, 0]] + 0.7 * rng.randn(batch, 3, 8, 8), labels


x, t = nn.Variable((batch, 3, 8, 8)), nn.Variable((batch, 1))
loss = F.mean(F.softmax_cross_entropy(resnet(x), t))
vx, vt = nn.Variable((batch, 3, 8, 8)), nn.Variable((batch, 1))
vloss = F.mean(F.softmax_cross_entropy(resnet(vx, test=True), vt))
vx.d, vt.d = draw()
start(1)

schedule = CosineScheduler(0.1, max_iter=steps)
solver = S.Momentum(0.1, 0.9)
solver.set_parameters(nn.get_parameters())
monitor = Monitor("tmp.monitor.resnet")
monitor_loss = MonitorSeries("loss", monitor, interval=1, verbose=False)

for i in range(steps):
    x.d, t.d = draw()
    loss.forward(clear_no_need_grad=True)
    solver.zero_grad()
    loss.backward(clear_buffer=True)
    solver.set_learning_rate(schedule.get_learning_rate(i))
    solver.weight_decay(5e-4)
    solver.update()
    monitor_loss.add(i, loss.d.copy())
    history["loss"].append(float(loss.d))
    if i % 3 == 2:
        vloss.forward(clear_buffer=True)
        history["evaluation loss"].append(float(vloss.d))

nn.save_parameters("resnet.h5")
nn.clear_parameters()
nn.load_parameters("resnet.h5")
vloss = F.mean(F.softmax_cross_entropy(resnet(vx, test=True), vt))
vloss.forward()
history["loss after loading"].append(float(vloss.d))
with nn.parameter_scope("conv1"):
    for name, w in nn.get_parameters(grad_only=False).items():
        print(name, w.shape, w.need_grad)
