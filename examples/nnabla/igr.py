"""A surface as the zeros of a network (IGR): an eikonal loss, and normals, by `nn.grad`."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.initializer as I
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S
from nngrad.nnabla.ext_utils import get_extension_context

points, width, depth, steps = 24, 24, 4, 8
history = {"surface": [], "normals": [], "eikonal": [], "loss": [], "distance at 0": []}
rng = np.random.RandomState(11)
nn.set_default_context(get_extension_context("cpu", type_config="float"))


def affine(h, n, name):
    """A layer whose weights begin as those of a distance to a sphere."""
    last = name.endswith("last")
    mean, spread = (np.sqrt(np.pi / h.shape[1]), 1e-2) if last else (0.0, np.sqrt(2.0 / n))

    def w_init(shape):
        return mean + spread * rng.randn(*shape)

    return PF.affine(h, n, w_init=w_init, b_init=I.ConstantInitializer(-0.5 if last else 0.0), name=name)


def network(x):
    """The signed distance of points; the input comes in once more in the middle."""
    with nn.parameter_scope("implicit"):
        h = x
        for i in range(depth):
            if i == depth // 2:
                h = F.concatenate(h, x, axis=1) * (1.0 / np.sqrt(2))
            h = F.softplus(affine(h, width, f"fc-{i}"), beta=10)
        return affine(h, 1, "fc-last")


def norm(v):
    return F.pow_scalar(F.sum(v**2, axis=1, keepdims=True), 0.5)


x = nn.Variable((points, 3)).apply(need_grad=True)
x_free = nn.Variable((points, 3)).apply(need_grad=True)
n = nn.Variable((points, 3))

y = network(x)
(g,) = nn.grad([y], [x])
(g_free,) = nn.grad([network(x_free)], [x_free])
loss_surface = F.mean(F.absolute_error(y, F.constant(0.0, y.shape)))
loss_normals = F.mean(norm(g - n))
loss_eikonal = F.mean((norm(g_free) - 1.0) ** 2)
loss = loss_surface + 1.0 * loss_normals + 0.1 * loss_eikonal
for part in (loss_surface, loss_normals, loss_eikonal):
    part.persistent = True

origin = nn.Variable.from_numpy_array(np.zeros((1, 3)))
distance = network(origin)

solver = S.Adam(5e-3)
solver.set_parameters(nn.get_parameters())
for _ in range(steps):
    normals = rng.randn(points, 3)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    n.d, x.d = normals, 0.6 * normals
    x_free.d = rng.uniform(-1, 1, (points, 3))
    solver.zero_grad()
    loss.forward()
    loss.backward()
    solver.update()
    history["surface"].append(float(loss_surface.d))
    history["normals"].append(float(loss_normals.d))
    history["eikonal"].append(float(loss_eikonal.d))
    history["loss"].append(float(loss.d))
distance.forward(clear_buffer=True)
history["distance at 0"].append(float(distance.d[0, 0]))
