"""WGAN-GP in nnabla, in a process of its own: its wheels are for other Pythons and NumPys than nngrad's.

    PYTHON_WITH_NNABLA _wgan_in_nnabla.py IMAGES.npy GOAL MOST
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import _wgan_loop as loop
import nnabla as nn
import nnabla.functions as F
import nnabla.solvers as S
import numpy as np


def network(p: list[Any], x: Any) -> Any:
    """Dense layers, with leaky rectifiers between them."""
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = F.leaky_relu(F.affine(x, w, b), 0.2)
    return F.affine(x, p[-2], p[-1])


def solver_of(p: list[Any]) -> Any:
    """Adam."""
    solver = S.Adam(loop.RATE, *loop.BETAS)
    solver.set_parameters({str(i): w for i, w in enumerate(p)})
    return solver


def trainer() -> loop.Trainer:
    """WGAN-GP with nnabla's double backward."""
    critic, generator = (
        [nn.Variable.from_numpy_array(a, need_grad=True) for a in p] for p in loop.first_parameters()
    )
    real, z, mix = (nn.Variable((loop.BATCH, n)) for n in (loop.PIXELS, loop.LATENT, 1))
    fake = F.tanh(network(generator, z))
    apart = fake.get_unlinked_variable(need_grad=False)
    between = mix * real + (1 - mix) * apart
    between.need_grad = True
    (slope,) = nn.grad([network(critic, between)], [between])
    norm = F.sum(slope**2, axis=1) ** 0.5
    loss = F.mean(network(critic, apart)) - F.mean(network(critic, real)) + loop.PENALTY * F.mean((norm - 1) ** 2)
    fooled = -F.mean(network(critic, fake))
    of_critic, of_generator = solver_of(critic), solver_of(generator)
    many = nn.Variable((loop.SEEN, loop.LATENT))
    images = F.tanh(network(generator, many))

    def critic_step(*arrays: np.ndarray) -> float:
        real.d, z.d, mix.d = arrays
        fake.forward()
        loss.forward(clear_no_need_grad=True)
        of_critic.zero_grad()
        loss.backward(clear_buffer=True)
        of_critic.update()
        return float(loss.d)

    def generator_step(noise: np.ndarray) -> float:
        z.d = noise
        fooled.forward(clear_no_need_grad=True)
        of_generator.zero_grad()
        fooled.backward(clear_buffer=True)
        of_generator.update()
        return float(fooled.d)

    def generate(noise: np.ndarray) -> np.ndarray:
        many.d = noise
        images.forward()
        return images.d.copy()

    return loop.Trainer(critic_step, generator_step, generate)


def main() -> None:
    """Print the first loss, the least time of a critic's step, and how training went, as JSON."""
    images = np.load(sys.argv[1])
    step = trainer().critic_step
    batch = loop.batch_of(np.random.default_rng(3), images)
    first = step(*batch)
    times = []
    for _ in range(100):
        start = time.perf_counter()
        step(*batch)
        times.append(time.perf_counter() - start)
    told = loop.trained(trainer(), images, float(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps({"loss": first, "step": min(times), **told}))


if __name__ == "__main__":
    main()
