"""Samples of exchanges between processes, with one process; several are in `tests/nnabla/test_communicators.py`."""

from . import real, sample

SAMPLES = [
    sample("all_reduce", real(2, 3), processes=(0,), ref=lambda x: x),
    sample("all_gather", real(2, 3), processes=(0,), ref=lambda x: x[None]),
    sample("reduce_scatter", real(1, 3), processes=(0,), ref=lambda x: x[0]),
    sample("bcast", real(2), processes=(1,), ref=lambda x: x),
    sample("reduce_to_process", real(2), processes=(1,), ref=lambda x: x),
]
