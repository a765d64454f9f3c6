"""Training that must not depend on how many processes take part: a script for `launching.py`.

    python -m tests.several_hosts.programs STEPS FILE

writes losses and parameters of a WGAN-GP with batch normalisation and dropout, of a PINN with third derivatives and of
a minimisation with Hessian-vector products.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

BATCH = 16
Results = dict[str, np.ndarray[Any, Any]]


def critic(x: nn.Variable) -> nn.Variable:
    with nn.parameter_scope("critic"):
        h = F.dropout(F.leaky_relu(PF.affine(x, 16, name="first"), 0.2), 0.3)
        return PF.affine(F.tanh(PF.affine(h, 16, name="second")), 1, name="third")


def generator(z: nn.Variable) -> nn.Variable:
    with nn.parameter_scope("generator"):
        h = F.relu(PF.batch_normalization(PF.affine(z, 16, name="first"), name="normal"))
        return PF.affine(h, 6, name="second")


def own_parameters(scope: str) -> dict[str, nn.Variable]:
    with nn.parameter_scope(scope):
        return dict(nn.get_parameters())


def adversarial(steps: int) -> Results:
    """WGAN-GP: the penalty is a gradient, so its training is of second order."""
    rng = np.random.default_rng(1)
    real, z = nn.Variable((BATCH, 6)), nn.Variable((BATCH, 4))
    fake = generator(z)
    mix = F.rand(shape=(BATCH, 1))
    between = mix * real + (1 - mix) * fake
    (slope,) = nn.grad([critic(between)], [between])
    penalty = F.mean((F.sum(slope**2, axis=1) ** 0.5 - 1) ** 2)
    loss = F.mean(critic(fake)) - F.mean(critic(real)) + 10 * penalty
    train_critic = nn.train_step(loss, own_parameters("critic"), S.Momentum(1e-3, 0.5), inputs=[real, z])
    train_generator = nn.train_step(-F.mean(critic(generator(z))), own_parameters("generator"), S.Momentum(1e-3, 0.5),
                                    inputs=[z])
    losses = []
    for _ in range(steps):
        images, noise = rng.normal(size=(BATCH, 6)).astype("f"), rng.normal(size=(BATCH, 4)).astype("f")
        losses += [train_critic(*map(own, (images, noise))), train_generator(own(noise))]
    return results(losses)


def physics(steps: int) -> Results:
    """The Korteweg-de Vries equation, u_t + 6 u u_x + u_xxx = 0, at random places."""
    rng = np.random.default_rng(2)
    t, x = nn.Variable((BATCH, 1), need_grad=True), nn.Variable((BATCH, 1), need_grad=True)

    def network(t: nn.Variable, x: nn.Variable) -> nn.Variable:
        h = F.tanh(PF.affine(F.concatenate(t, x, axis=1), 12, name="first"))
        return PF.affine(F.tanh(PF.affine(h, 12, name="second")), 1, name="third")

    u = network(t, x)
    u_t, u_x = nn.grad([u], [t, x])
    (u_xx,) = nn.grad([u_x], [x])
    (u_xxx,) = nn.grad([u_xx], [x])
    loss = F.mean((u_t + 6 * u * u_x + u_xxx) ** 2) + F.mean((network(t * 0, x) - F.sin(x)) ** 2)
    step = nn.train_step(loss, nn.get_parameters(), S.Momentum(1e-3, 0.9), inputs=[t, x])
    losses = [step(*[own(rng.uniform(-1, 1, (BATCH, 1)).astype("f")) for _ in range(2)]) for _ in range(steps)]
    return results(losses)


def curvature(steps: int) -> Results:
    """Gradient descent on a loss that has its own Hessian-vector product in it, along the gradient."""
    rng = np.random.default_rng(3)
    x, y = nn.Variable((BATCH, 5)), nn.Variable((BATCH, 1))
    loss = F.mean((PF.affine(F.tanh(PF.affine(x, 8, name="first")), 1, name="second") - y) ** 2)
    leaves = list(nn.get_parameters().values())
    gradients = nn.grad([loss], leaves)
    product = sum([F.sum(g * F.constant(0.1, shape=g.shape)) for g in gradients], F.constant(0, shape=()))
    along = nn.grad([product], leaves)  # the Hessian times a vector
    flat = sum([F.sum(h**2) for h in along], loss)
    step = nn.train_step(flat, nn.get_parameters(), S.Sgd(1e-2), inputs=[x, y])
    losses = []
    for _ in range(steps):
        features = rng.normal(size=(BATCH, 5)).astype("f")
        losses.append(step(own(features), own(features[:, :1] ** 2)))
    return results(losses)


def own(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The part of a batch that this process feeds."""
    part: np.ndarray[Any, Any] = nn.hosts.part_of(batch)
    return part


def results(losses: list[Any]) -> Results:
    found = {name: np.asarray(p.d) for name, p in nn.get_parameters(grad_only=False).items()}
    return {"losses": np.array([float(loss) for loss in losses], "f"), **found}


PROGRAMS: dict[str, Callable[[int], Results]] = {
    "WGAN-GP": adversarial, "third derivatives": physics, "Hessian-vector product": curvature
}  # fmt: skip


def run(steps: int) -> Results:
    """The results of all programs, on all devices that there are."""
    found: Results = {}
    for name, program in PROGRAMS.items():
        nn.clear_parameters()
        nn.seed(7)
        np.random.seed(7)
        with nn.mesh(data=-1):
            found.update({f"{name}: {key}": value for key, value in program(steps).items()})
    return found


if __name__ == "__main__":
    print(nn.hosts.initialize())
    made = run(int(sys.argv[1]))
    if nn.hosts.is_first():
        np.savez(sys.argv[2], **made)
