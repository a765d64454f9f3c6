"""A DCGAN: deconvolutions, batch normalisation, two solvers over scopes of parameters, and a picture of tiles."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S
from nngrad.nnabla.monitor import Monitor, MonitorImageTile, MonitorSeries

batch, latent, steps = 6, 5, 6
history = {"generator": [], "discriminator": []}


def generator(z, maxh=16, test=False):
    with nn.parameter_scope("gen"):
        with nn.parameter_scope("deconv1"):
            h = PF.deconvolution(z, maxh, (3, 3), with_bias=False)
            h = F.elu(PF.batch_normalization(h, batch_stat=not test))
        with nn.parameter_scope("deconv2"):
            h = PF.deconvolution(h, maxh // 2, (4, 4), pad=(1, 1), stride=(2, 2), with_bias=False)
            h = F.elu(PF.batch_normalization(h, batch_stat=not test))
        with nn.parameter_scope("conv3"):
            return F.tanh(PF.deconvolution(h, 1, (4, 4), pad=(1, 1), stride=(2, 2)))


def discriminator(x, maxh=16, test=False):
    with nn.parameter_scope("dis"):
        with nn.parameter_scope("conv1"):
            h = F.elu(
                PF.batch_normalization(
                    PF.convolution(x, maxh // 2, (4, 4), pad=(1, 1), stride=(2, 2), with_bias=False),
                    batch_stat=not test,
                )
            )
        with nn.parameter_scope("conv2"):
            h = F.elu(
                PF.batch_normalization(
                    PF.convolution(h, maxh, (4, 4), pad=(1, 1), stride=(2, 2), with_bias=False), batch_stat=not test
                )
            )
        with nn.parameter_scope("conv3"):
            h = PF.convolution(h, 1, (3, 3))
    return F.sigmoid_cross_entropy(F.reshape(h, (batch, 1)), F.constant(1, (batch, 1))), h


def start(seed):
    rng = np.random.RandomState(seed)
    for name, w in sorted(nn.get_parameters().items()):
        if name.endswith("/W"):
            w.d = 0.2 * rng.randn(*w.shape)


rng = np.random.RandomState(3)

# The generator, by way of the discriminator
z = nn.Variable((batch, latent, 1, 1))
fake = generator(z)
fake.persistent = True
_, pred_fake = discriminator(fake)
loss_gen = F.mean(F.sigmoid_cross_entropy(pred_fake, F.constant(1, pred_fake.shape)))
fake_dis = fake.get_unlinked_variable(need_grad=True)
fake_dis.need_grad = False

# The discriminator
_, pred_fake_dis = discriminator(fake_dis)
loss_dis = F.mean(F.sigmoid_cross_entropy(pred_fake_dis, F.constant(0, pred_fake_dis.shape)))
x = nn.Variable((batch, 1, 12, 12))
cross_real, _ = discriminator(x)
loss_dis += F.mean(cross_real)

start(4)
solver_gen, solver_dis = S.Adam(0.002, beta1=0.5), S.Adam(0.002, beta1=0.5)
with nn.parameter_scope("gen"):
    solver_gen.set_parameters(nn.get_parameters())
with nn.parameter_scope("dis"):
    solver_dis.set_parameters(nn.get_parameters())

monitor = Monitor("tmp.monitor.dcgan")
monitor_gen = MonitorSeries("Generator loss", monitor, interval=2)
monitor_dis = MonitorSeries("Discriminator loss", monitor, interval=2)
monitor_fake = MonitorImageTile("Fakes", monitor, interval=3, num_images=4, normalize_method=lambda y: (y + 1) / 2)

for i in range(steps):
    angle = rng.uniform(0, np.pi, (batch, 1, 1, 1))
    u, v = np.meshgrid(np.linspace(-3, 3, 12), np.linspace(-3, 3, 12))
    x.d = np.sin(2 * (u * np.cos(angle) + v * np.sin(angle)))
    z.d = rng.randn(*z.shape)

    solver_gen.zero_grad()
    loss_gen.forward(clear_no_need_grad=True)
    loss_gen.backward(clear_buffer=True)
    solver_gen.weight_decay(1e-4)
    solver_gen.update()
    monitor_fake.add(i, fake.d.copy())
    monitor_gen.add(i, loss_gen.d.copy())
    history["generator"].append(float(loss_gen.d))

    solver_dis.zero_grad()
    loss_dis.forward(clear_no_need_grad=True)
    loss_dis.backward(clear_buffer=True)
    solver_dis.weight_decay(1e-4)
    solver_dis.update()
    monitor_dis.add(i, loss_dis.d.copy())
    history["discriminator"].append(float(loss_dis.d))

with nn.parameter_scope("gen"):
    nn.save_parameters("generator.h5")
