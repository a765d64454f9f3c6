"""Samples of the family `separable`."""

from . import real, sample


def separable(x, v, h):
    """By its definition, element by element of the kernels."""
    (_, rows, *sizes), columns = v.shape, h.shape[1]
    return sum(
        v[:, None, j] * h[:, None, i] * x[:, :, j:j + sizes[0], i:i + sizes[1]]
        for j in range(rows) for i in range(columns)
    )


SAMPLES = [
    sample("adaptive_separable_convolution", real(1, 2, 3, 4), real(1, 2, 2, 2), real(1, 3, 2, 2), ref=separable),
]
