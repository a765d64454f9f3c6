"""Complex numbers that begin and end in real ones: transforms, products, exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from .rows import LESS, POSITIVE, VECTOR, X, Y, row


def real_sum(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Both parts of a function of complex numbers in one real number."""

    def run(x: Any, y: Any) -> Any:
        z = function(lax.complex(x, y))
        return z.real + 2 * z.imag

    return run


ROWS = [
    row("jnp.fft.rfft", lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, X),
    row("jnp.fft.irfft", lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.arange(3), n=4) ** 2, X),
    row("jnp.fft.irfft(odd)", lambda x: jnp.fft.irfft(jnp.fft.rfft(x), n=5) ** 2, VECTOR),
    row("jnp.fft.fft", lambda x: jnp.fft.fft(x).real * jnp.fft.ifft(x).imag, X),
    row("jnp.fft.fft2", lambda x: jnp.real(jnp.fft.ifft2(jnp.fft.fft2(x) ** 2)), X),
    row("jnp.fft.rfftn", lambda x: jnp.fft.irfftn(jnp.fft.rfftn(x) * 2j, s=x.shape) ** 2, X),
    row("jnp.fft.hfft", lambda x: jnp.fft.hfft(x) * jnp.fft.fftfreq(6) + jnp.fft.fftshift(x)[:, :1], X),
    row("a derivative by fft", lambda x: jnp.fft.ifft(1j * jnp.fft.fftfreq(4) * jnp.fft.fft(x)).real * x, X),
    row("complex products", lambda x, y: jnp.real((x + 1j * y) ** 2 * jnp.conj(y + 2j)), X, Y),
    row("complex quotients", lambda x, y: jnp.imag((x + 1j) / (y + 2j)), X, Y),
    row("complex exponentials", lambda x: jnp.exp(1j * x).real * jnp.imag(jnp.exp(x + 2j * x)), X),
    row("jnp.abs", lambda x, y: jnp.abs(lax.complex(x, y)) * jnp.angle(lax.complex(x, y)), X, Y),
    row("complex matrices", lambda x, y: jnp.abs((x + 1j * y) @ (y - 1j * x).T) ** 2, X, Y),
    row("complex shapes", lambda x, y: jnp.sum((x + 1j * y)[:, None, ::2].transpose(2, 0, 1), 0).real, X, Y),
    row("complex logarithms", lambda x, y: jnp.log(lax.complex(x, y)).imag + jnp.sqrt(lax.complex(x, y)).real, POSITIVE,
        Y),
    *[row(f"complex {function.__name__}", real_sum(function), POSITIVE, LESS)
      for function in (lax.acos, lax.acosh, lax.asinh, lax.atan, lax.cosh, lax.exp2, lax.expm1, lax.log1p, lax.logistic,
                       lax.rsqrt, lax.sign, lax.sin, lax.sqrt, lax.tanh)],
    row("complex powers", lambda x, y: jnp.imag(lax.complex(x, y) ** 1.5 + lax.complex(x, y) ** lax.complex(y, x)),
        POSITIVE, LESS),
    row("complex convolutions",
        lambda x, y: jnp.abs(jnp.convolve(lax.complex(x[0], y[0]), lax.complex(y[1], x[1]))), X, Y),
    row("complex parts that are smaller", lambda x: jnp.real(lax.complex(x[:1], jnp.ones((3, 4))) ** 2) * x, X),
    row("complex choices", lambda x: jnp.where(x > 0, jnp.exp(1j * x), 2j * x).imag, X),
]  # fmt: skip
