"""A Wasserstein GAN whose critic is held by a penalty on its gradient by interpolated pictures."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S

batch, latent, critic_steps, steps = 6, 4, 2, 4
history = {"critic": [], "penalty": [], "generator": []}


def generator(z):
    with nn.parameter_scope("generator"):
        h = F.relu(F.reshape(PF.affine(z, 8 * 3 * 3, name="fc"), (batch, 8, 3, 3)))
        h = F.relu(PF.convolution(F.unpooling(h, (2, 2)), 6, (3, 3), pad=(1, 1), name="conv1"))
        return F.tanh(PF.convolution(h, 1, (3, 3), pad=(1, 1), name="conv2"))


def critic(x):
    with nn.parameter_scope("critic"):
        h = F.leaky_relu(PF.convolution(x, 6, (3, 3), pad=(1, 1), name="conv1"), 0.2)
        h = F.leaky_relu(PF.convolution(h, 8, (3, 3), pad=(1, 1), stride=(2, 2), name="conv2"), 0.2)
        h = PF.layer_normalization(h, no_bias=True, name="norm")
        return PF.affine(h, 1, name="fc", with_bias=False)


def start(seed):
    rng = np.random.RandomState(seed)
    for name, w in sorted(nn.get_parameters().items()):
        if name.endswith("/W"):
            w.d = rng.randn(*w.shape) / np.sqrt(np.prod(w.shape[1:]) if w.ndim == 4 else w.shape[0])


rng = np.random.RandomState(5)
z = nn.Variable((batch, latent))
x_fake = generator(z)
loss_gen = -F.mean(critic(x_fake))

x_real = nn.Variable((batch, 1, 6, 6))
eps = nn.Variable((batch, 1, 1, 1))
x_unlinked = x_fake.get_unlinked_variable(need_grad=False)
x_inter = (1.0 - eps) * x_real + eps * x_unlinked
x_inter.need_grad = True  # which nnabla asks for
x_inter.persistent = True
p_inter = critic(x_inter)
grads = nn.grad([p_inter], [x_inter])
norms = [F.sum(g**2.0, axis=(1, 2, 3)) ** 0.5 for g in grads]
penalty = sum([F.mean((norm - 1.0) ** 2.0) for norm in norms])
penalty.persistent = True
loss_critic = F.mean(critic(x_unlinked)) - F.mean(critic(x_real)) + 10.0 * penalty

start(6)
solver_gen, solver_critic = S.Adam(2e-3, beta1=0.0, beta2=0.9), S.Adam(2e-3, beta1=0.0, beta2=0.9)
with nn.parameter_scope("generator"):
    solver_gen.set_parameters(nn.get_parameters())
with nn.parameter_scope("critic"):
    solver_critic.set_parameters(nn.get_parameters())

for _ in range(steps):
    for _ in range(critic_steps):
        x_real.d = np.cumsum(rng.randn(batch, 1, 6, 6), axis=3) / 3
        z.d = rng.randn(batch, latent)
        eps.d = rng.rand(batch, 1, 1, 1)
        x_fake.forward(clear_no_need_grad=True)
        loss_critic.forward(clear_no_need_grad=True)
        solver_critic.zero_grad()
        loss_critic.backward(clear_buffer=True)
        solver_critic.update()
        history["critic"].append(float(loss_critic.d))
        history["penalty"].append(float(penalty.d))
    z.d = rng.randn(batch, latent)
    loss_gen.forward(clear_no_need_grad=True)
    solver_gen.zero_grad()
    loss_gen.backward(clear_buffer=True)
    solver_gen.update()
    history["generator"].append(float(loss_gen.d))
