"""LeNet on small pictures of bars: data iterators, monitors, weight decay, evaluation, saved parameters."""

import os

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S
from nngrad.nnabla.ext_utils import get_extension_context
from nngrad.nnabla.logger import logger
from nngrad.nnabla.monitor import Monitor, MonitorImageTile, MonitorSeries, MonitorTimeElapsed
from nngrad.nnabla.utils.data_iterator import data_iterator_simple

batch_size = 8
history = {"loss": [], "training error": [], "test error": []}


def bars(index):
    """A picture with a bar, and the class of it: where the bar is, and whether it stands or lies."""
    rng = np.random.RandomState(index)
    label = index % 4
    image = rng.randint(0, 80, (1, 16, 16))
    at = 4 + 7 * (label // 2)
    if label % 2:
        image[0, at : at + 2] += 150
    else:
        image[0, :, at : at + 2] += 150
    return image.astype(np.uint8), np.array([label])


def lenet(image, test=False):
    image /= 255.0
    h = F.relu(F.max_pooling(PF.convolution(image, 6, (5, 5), name="conv1"), (2, 2)))
    h = F.relu(F.max_pooling(PF.convolution(h, 8, (3, 3), name="conv2"), (2, 2)))
    h = F.relu(PF.affine(h, 20, name="affine3"))
    return PF.affine(h, 4, name="affine4")


def start(seed):
    rng = np.random.RandomState(seed)
    for name, w in sorted(nn.get_parameters().items()):
        w.d = 0 if name.endswith("/b") else rng.randn(*w.shape) / np.sqrt(np.prod(w.shape[1:]))


def categorical_error(pred, label):
    return (pred.argmax(1) != label.flat).mean()


logger.info("LeNet")
nn.set_default_context(get_extension_context("cpu", device_id="0", type_config="float"))

# Training
image = nn.Variable((batch_size, 1, 16, 16))
label = nn.Variable((batch_size, 1))
pred = lenet(image)
pred.persistent = True
loss = F.mean(F.softmax_cross_entropy(pred, label))

# Evaluation
vimage = nn.Variable((batch_size, 1, 16, 16))
vlabel = nn.Variable((batch_size, 1))
vpred = lenet(vimage, test=True)
verror = F.mean(F.top_n_error(vpred, vlabel, n=1))

start(313)
solver = S.Adam(0.003)
solver.set_parameters(nn.get_parameters())

monitor = Monitor("tmp.monitor.lenet")
monitor_loss = MonitorSeries("Training loss", monitor, interval=2)
monitor_error = MonitorSeries("Training error", monitor, interval=2)
monitor_time = MonitorTimeElapsed("Training time", monitor, interval=4)
monitor_verror = MonitorSeries("Test error", monitor, interval=4)
monitor_images = MonitorImageTile("Images", monitor, interval=4, num_images=4, normalize_method=lambda x: x / 255.0)

data = data_iterator_simple(bars, 32, batch_size, shuffle=False)
vdata = data_iterator_simple(lambda i: bars(1000 + i), 16, batch_size, shuffle=False)

for i in range(12):
    if i % 4 == 0:
        error = 0.0
        for _ in range(2):
            vimage.d, vlabel.d = vdata.next()
            verror.forward(clear_buffer=True)
            error += float(verror.d)
        monitor_verror.add(i, error / 2)
        history["test error"].append(error / 2)
        nn.save_parameters(os.path.join(monitor.save_path, f"params_{i:06}.h5"))
    image.d, label.d = data.next()
    solver.zero_grad()
    loss.forward(clear_no_need_grad=True)
    loss.backward(clear_buffer=True)
    solver.weight_decay(1e-4)
    solver.update()
    loss.data.cast(np.float32)
    error = categorical_error(pred.d, label.d)
    history["loss"].append(float(loss.d))
    history["training error"].append(error)
    monitor_loss.add(i, loss.d.copy())
    monitor_error.add(i, error)
    monitor_time.add(i)
    monitor_images.add(i, image.d.copy())
data.close()
vdata.close()
