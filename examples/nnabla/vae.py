"""A variational autoencoder: the reparameterised sample, a Gaussian divergence and a Bernoulli likelihood."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.initializer as I
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S
from nngrad.nnabla.monitor import Monitor, MonitorSeries
from nngrad.nnabla.utils.data_iterator import data_iterator_simple

batch, latent, steps = 8, 3, 10
history = {"loss": [], "reconstruction": [], "divergence": [], "evaluation": []}
rng = np.random.RandomState(31)


class Bernoulli:
    """Pixels that are on or off."""

    def __init__(self, logits):
        self.logits = logits

    def nll(self, x):
        return F.mean(F.sum(F.sigmoid_cross_entropy(self.logits, x), axis=1))


class Gaussian:
    """A normal distribution of each latent number."""

    def __init__(self, mean, log_variance):
        self.mean, self.log_variance = mean, log_variance

    def sample(self, noise):
        return self.mean + F.exp(0.5 * self.log_variance) * noise

    def divergence(self):
        """From the standard one."""
        kl = 0.5 * F.sum(1 + self.log_variance - self.mean**2 - F.exp(self.log_variance), axis=1)
        return -F.mean(kl)


def affine(h, n, name):
    lim = I.calc_uniform_lim_glorot(h.shape[1], n)
    return PF.affine(h, n, w_init=I.UniformInitializer(lim, rng=rng), name=name)


def vae(x, noise, test=False):
    h = F.relu(affine(x, 20, "encoder1"))
    prior = Gaussian(affine(h, latent, "mean"), affine(h, latent, "log_variance"))
    z = prior.mean if test else prior.sample(noise)
    logits = affine(F.relu(affine(z, 20, "decoder1")), x.shape[1], "decoder2")
    likelihood = Bernoulli(logits).nll(x)
    return likelihood, prior.divergence()


def example(index):
    """A disc in a square, of a size and place that follow from the index."""
    i, j = np.mgrid[:6, :6]
    at, radius = index % 5, 1.2 + 0.4 * (index % 3)
    return (((i - at) ** 2 + (j - 2) ** 2) < radius**2).astype(np.float32).reshape(-1), np.int32(index)


x, noise = nn.Variable((batch, 36)), nn.Variable((batch, latent))
likelihood, divergence = vae(x, noise)
likelihood.persistent = divergence.persistent = True
loss = likelihood + divergence
vlikelihood, vdivergence = vae(x, noise, test=True)
vloss = vlikelihood + vdivergence

solver = S.Adam(alpha=1e-3)
solver.set_parameters(nn.get_parameters())
monitor = Monitor("tmp.monitor.vae")
monitor_loss = MonitorSeries("Training loss", monitor, interval=5)
data = data_iterator_simple(example, 24, batch, shuffle=False)

for i in range(steps):
    if i % 5 == 0:
        x.d, _ = data.next()
        vloss.forward(clear_buffer=True)
        history["evaluation"].append(float(vloss.d))
    x.d, _ = data.next()
    noise.d = rng.randn(batch, latent)
    loss.forward(clear_no_need_grad=True)
    solver.zero_grad()
    loss.backward(clear_buffer=True)
    solver.weight_decay(1e-4)
    solver.update()
    monitor_loss.add(i, loss.d.copy())
    history["loss"].append(float(loss.d))
    history["reconstruction"].append(float(likelihood.d))
    history["divergence"].append(float(divergence.d))
data.close()
