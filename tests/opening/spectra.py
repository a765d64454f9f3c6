"""Complex numbers that begin and end in real ones: transforms, products, exponentials."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from .rows import POSITIVE, VECTOR, X, Y, row

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
        Y, opaque=1),
    row("complex choices", lambda x: jnp.where(x > 0, jnp.exp(1j * x), 2j * x).imag, X),
]  # fmt: skip
