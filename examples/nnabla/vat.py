"""Virtual adversarial training: the direction that changes predictions most, found by `backward`."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S

batch, features, classes, steps = 8, 6, 3, 8
xi, epsilon, power_iterations = 10.0, 1.5, 1
history = {"supervised": [], "virtual adversarial": [], "error": []}
rng = np.random.RandomState(51)


def mlp(x, maxh=16, test=False):
    h = F.leaky_relu(PF.affine(x, maxh, name="fc1"), 0.1)
    h = F.leaky_relu(PF.affine(h, maxh, name="fc2"), 0.1)
    return PF.affine(h, classes, name="fc3")


def divergence(p_logits, q_logits):
    """From the first distribution of each row to the second."""
    p, log_p, log_q = F.softmax(p_logits), F.log_softmax(p_logits), F.log_softmax(q_logits)
    return F.mean(F.sum(p * (log_p - log_q), axis=1))


def unit(r):
    return r / np.sqrt(np.sum(r**2, axis=1, keepdims=True))


x_l, t = nn.Variable((batch, features)), nn.Variable((batch, 1))
y_l = mlp(x_l)
loss_l = F.mean(F.softmax_cross_entropy(y_l, t))
error = F.mean(F.top_n_error(y_l, t))
error.persistent = True

x_u = nn.Variable((batch, features))
y_u = mlp(x_u)
y_u_data = y_u.get_unlinked_variable(need_grad=False)
noise = nn.Variable((batch, features), need_grad=True)
y_noise = mlp(x_u + xi * noise)
loss_noise = divergence(y_u_data, y_noise)
r = nn.Variable((batch, features))
loss_u = divergence(y_u_data, mlp(x_u + epsilon * r))

for name, w in sorted(nn.get_parameters().items()):
    w.d = rng.randn(*w.shape) * (0.05 if name.endswith("/b") else 1.0 / np.sqrt(w.shape[0]))
solver = S.Momentum(0.05)
solver.set_parameters(nn.get_parameters())
centers = 1.5 * rng.randn(classes, features)

for _ in range(steps):
    labels = rng.randint(0, classes, (batch, 1))
    x_l.d, t.d = centers[labels[:, 0]] + rng.randn(batch, features), labels
    nn.forward_all([loss_l, error])
    solver.zero_grad()
    loss_l.backward()
    solver.update()

    x_u.d = centers[rng.randint(0, classes, batch)] + rng.randn(batch, features)
    y_u.forward()
    noise.d = unit(rng.randn(batch, features))
    for _ in range(power_iterations):
        noise.grad.zero()
        loss_noise.forward()
        loss_noise.backward()
        noise.d = unit(noise.g)
    r.d = noise.d
    loss_u.forward()
    solver.zero_grad()
    loss_u.backward()
    solver.update()

    history["supervised"].append(float(loss_l.d))
    history["virtual adversarial"].append(float(loss_u.d))
    history["error"].append(float(error.d))
