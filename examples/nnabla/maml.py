"""Model-agnostic meta-learning of sinusoids: inner steps by `nn.grad`, the outer one by `backward` through them."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S
from nngrad.nnabla.ext_utils import get_extension_context

tasks, shots, inner_steps, inner_rate, hidden, steps = 3, 5, 2, 0.05, 16, 6
history = {"before adaptation": [], "after adaptation": []}
rng = np.random.RandomState(21)
nn.set_default_context(get_extension_context("cpu", type_config="float"))


def network(x, weights):
    h = F.relu(F.affine(x, weights["fc1/affine/W"], weights["fc1/affine/b"]))
    h = F.relu(F.affine(h, weights["fc2/affine/W"], weights["fc2/affine/b"]))
    return F.affine(h, weights["fc3/affine/W"], weights["fc3/affine/b"])


def error(x, y, weights):
    return F.mean(F.squared_error(network(x, weights), y))


def adapted(x, y, weights):
    """The weights after a few steps of descent, as functions of those before."""
    for _ in range(inner_steps):
        names = list(weights)
        grads = nn.grad([error(x, y, weights)], [weights[name] for name in names])
        weights = {name: weights[name] - inner_rate * g for name, g in zip(names, grads, strict=True)}
    return weights


def sinusoid():
    """Points of one to adapt to, and others to try the adapted weights on."""
    amplitude, phase = rng.uniform(0.5, 2.0), rng.uniform(0, np.pi)
    for _ in range(2):
        points = rng.uniform(-3, 3, (shots, 1))
        yield nn.Variable.from_numpy_array(points)
        yield nn.Variable.from_numpy_array(amplitude * np.sin(points + phase))


# The parameters
with nn.parameter_scope("model"):
    h = PF.affine(PF.affine(nn.Variable((shots, 1)), hidden, name="fc1"), hidden, name="fc2")
    PF.affine(h, 1, name="fc3")
    parameters = nn.get_parameters()
for name, w in sorted(parameters.items()):
    w.d = rng.randn(*w.shape) * (0.1 if name.endswith("/b") else 1.0 / np.sqrt(w.shape[0]))

solver = S.Adam(3e-3)
solver.set_parameters(parameters)

# The graph is built anew for the tasks of each step
for _ in range(steps):
    before, after = [], []
    for _ in range(tasks):
        x_train, y_train, x_test, y_test = sinusoid()
        weights = dict(parameters)
        before.append(error(x_test, y_test, weights))
        after.append(error(x_test, y_test, adapted(x_train, y_train, weights)))
    loss_before, loss_after = sum(before) / tasks, sum(after) / tasks
    nn.forward_all([loss_before, loss_after], clear_no_need_grad=True)
    solver.zero_grad()
    loss_after.backward(clear_buffer=True)
    solver.update()
    history["before adaptation"].append(float(loss_before.d))
    history["after adaptation"].append(float(loss_after.d))
