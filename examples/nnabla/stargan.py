"""Pictures carried between three domains by one generator: adversarial, classification and cycle losses."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S

batch, domains, size, steps, critic_steps = 4, 3, 8, 3, 2
lambda_class, lambda_cycle, lambda_penalty = 1.0, 10.0, 10.0
history = {"discriminator": [], "penalty": [], "generator": [], "classification": [], "cycle": []}
rng = np.random.RandomState(61)


def conv_norm_relu(x, c, k, stride, pad, scope):
    with nn.parameter_scope(scope):
        h = PF.convolution(x, c, (k, k), pad=(pad, pad), stride=(stride, stride), with_bias=False)
        return F.relu(PF.instance_normalization(h), inplace=True)


def generator(x, c):
    """x as it would look in domain c, which joins it as channels."""
    with nn.parameter_scope("gen"):
        c = F.broadcast(F.reshape(c, (batch, domains, 1, 1)), (batch, domains, *x.shape[2:]))
        h = conv_norm_relu(F.concatenate(x, c, axis=1), 8, 3, 1, 1, "in")
        h = conv_norm_relu(h, 12, 4, 2, 1, "down")
        with nn.parameter_scope("residual"):
            r = conv_norm_relu(h, 12, 3, 1, 1, "conv1")
            with nn.parameter_scope("conv2"):
                h = h + PF.instance_normalization(PF.convolution(r, 12, (3, 3), pad=(1, 1), with_bias=False))
        with nn.parameter_scope("up"):
            h = PF.deconvolution(h, 8, (4, 4), pad=(1, 1), stride=(2, 2), with_bias=False)
            h = F.relu(PF.instance_normalization(h))
        return F.tanh(PF.convolution(h, 1, (3, 3), pad=(1, 1), with_bias=False, name="out"))


def discriminator(x):
    """Whether parts of x look real, and the logits of its domain."""
    with nn.parameter_scope("dis"):
        h = F.leaky_relu(PF.convolution(x, 8, (4, 4), pad=(1, 1), stride=(2, 2), name="conv1"), 0.01)
        h = F.leaky_relu(PF.convolution(h, 12, (4, 4), pad=(1, 1), stride=(2, 2), name="conv2"), 0.01)
        real = PF.convolution(h, 1, (3, 3), pad=(1, 1), with_bias=False, name="real")
        kind = PF.convolution(h, domains, h.shape[2:], with_bias=False, name="kind")
    return real, F.reshape(kind, (batch, domains))


def start():
    for name, w in sorted(nn.get_parameters().items()):
        if name.endswith("/W"):
            w.d = rng.randn(*w.shape) * np.sqrt(1.5 / np.prod(w.shape[1:]))


def draw():
    """Pictures whose domain is the direction of their waves."""
    labels = rng.randint(0, domains, batch)
    angle = (np.pi / domains * labels + 0.1 * rng.randn(batch)).reshape(-1, 1, 1, 1)
    v, u = np.mgrid[-2:2:8j, -2:2:8j]
    return np.sin(2.5 * (u * np.cos(angle) + v * np.sin(angle))), labels.reshape(-1, 1)


x_real, label_real = nn.Variable((batch, 1, size, size)), nn.Variable((batch, 1))
label_target = nn.Variable((batch, 1))
one_hot_real = F.reshape(F.one_hot(label_real, (domains,)), (batch, domains))
one_hot_target = F.reshape(F.one_hot(label_target, (domains,)), (batch, domains))

# The generator: there and back again
x_fake = generator(x_real, one_hot_target)
x_fake.persistent = True
x_back = generator(x_fake, one_hot_real)
real_fake, kind_fake = discriminator(x_fake)
loss_g_class = F.mean(F.softmax_cross_entropy(kind_fake, label_target))
loss_cycle = F.mean(F.absolute_error(x_real, x_back))
loss_gen = -F.mean(real_fake) + lambda_class * loss_g_class + lambda_cycle * loss_cycle
loss_g_class.persistent = loss_cycle.persistent = True

# The discriminator, on pictures that are cut off from the generator
x_cut = x_fake.get_unlinked_variable(need_grad=False)
eps = nn.Variable((batch, 1, 1, 1))
x_between = eps * x_real + (1.0 - eps) * x_cut
x_between.need_grad = True
real_between, _ = discriminator(x_between)
(grad,) = nn.grad([real_between], [x_between])
penalty = F.mean((F.sum(grad**2, axis=(1, 2, 3)) ** 0.5 - 1.0) ** 2)
penalty.persistent = True
real_real, kind_real = discriminator(x_real)
loss_dis = F.mean(discriminator(x_cut)[0]) - F.mean(real_real) + lambda_penalty * penalty
loss_dis += lambda_class * F.mean(F.softmax_cross_entropy(kind_real, label_real))

start()
solver_gen, solver_dis = S.Adam(1e-3, beta1=0.5), S.Adam(1e-3, beta1=0.5)
with nn.parameter_scope("gen"):
    solver_gen.set_parameters(nn.get_parameters())
with nn.parameter_scope("dis"):
    solver_dis.set_parameters(nn.get_parameters())

for _ in range(steps):
    for _ in range(critic_steps):
        x_real.d, label_real.d = draw()
        label_target.d = rng.permutation(label_real.d)
        eps.d = rng.rand(batch, 1, 1, 1)
        x_fake.forward(clear_no_need_grad=True)
        loss_dis.forward(clear_no_need_grad=True)
        solver_dis.zero_grad()
        loss_dis.backward(clear_buffer=True)
        solver_dis.update()
        history["discriminator"].append(float(loss_dis.d))
        history["penalty"].append(float(penalty.d))
    loss_gen.forward(clear_no_need_grad=True)
    solver_gen.zero_grad()
    solver_dis.zero_grad()
    loss_gen.backward(clear_buffer=True)
    solver_gen.update()
    history["generator"].append(float(loss_gen.d))
    history["classification"].append(float(loss_g_class.d))
    history["cycle"].append(float(loss_cycle.d))
