"""Channels-last layouts around convolutions.

XLA's convolutions on a CPU take and return arrays with channels last. Around each one with channels first, it
transposes the inputs and the output. Each transpose is a loop of its own, to compile and to run. So the arrays between
convolutions keep that layout, and are processed in it: by elementwise functions, and by those of which
`CHANNELS_LAST` says how. They are transposed where other functions read them, and at the ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax
from jax import lax

from ..extend import Array, Block, Call, Function, Op, op
from ..functions.axes import row_places, rows
from ..functions.convolution import convolve_filter_grad
from .convolutions import is_by_elements
from .facts import CHANNELS_LAST, first_order, last_order, to_shape


def _first_axis(f: Function) -> tuple[tuple[int | None, ...], ...]:
    """It stays the first, unless others are prepended."""
    return row_places(f, (0,) if f.inputs[0].ndim == f.args["ndim"] else ())


@op(linear=True, fuses="moving", axes=replace(rows(), places=_first_axis))
def channels_last(x: Array, /, ndim: int) -> jax.Array:
    """`x` with channels last, after prepending axes of size 1 to make `ndim` axes."""
    return lax.transpose(lax.reshape(x, (*(1,) * (ndim - x.ndim), *x.shape)), last_order(ndim))


@op(linear=True, fuses="moving", axes=rows())
def channels_first(x: Array, /) -> jax.Array:
    """An array with channels last, transposed to have them as axis 1."""
    return lax.transpose(x, first_order(x.ndim))


def with_channels_last(block: Block) -> Block:
    """The block with channels-last convolutions; unchanged if it has none to convert."""
    return _Layouts(block).rewritten()


class _Layouts:
    """Rewrites the calls of a block, and tracks the layouts in which each value exists."""

    def __init__(self, block: Block) -> None:
        self._specs = block.spec_by_number
        self._given, self._outputs = block.without_identities()
        self._block = block
        self._calls: list[Call] = []
        self._free = min(self._specs, default=0)
        self._maker = {i: call for call in self._given for i in call.outs}
        self._arguments = {call.outs: self._arguments_of(call) for call in self._given}
        self._wanted = self._wanted_last()
        self._first = {i: i for i in range(len(block.inputs))}
        """The number of each value in the block's own layout."""
        self._last: dict[tuple[int, int], int] = {}
        """Its number with channels last, by the number of axes that it is expanded to."""

    def rewritten(self) -> Block:
        """The block in its new layouts."""
        for call in self._given:
            arguments = self._arguments[call.outs]
            if arguments is not None and self._moves(call):
                self._write_moved(call, arguments)
            else:
                self._write(call)
        if not self._last:
            return self._block
        outputs = [self._as_first(i) for i in self._outputs]
        return Block.of(self._block.inputs, self._calls, outputs)

    # ---------------------------------------------------------------- which calls

    def _arguments_of(self, call: Call) -> tuple[Any, ...] | None:
        """The arguments with which a call does the same on arrays with channels last; None if there are none."""
        op, arguments = call.op, call.arguments
        if op.diagonal:
            return arguments
        moved = CHANNELS_LAST.get(op)
        if moved is None:
            return None
        shapes = tuple([self._specs[i].shape for i in call.ins])
        changed = moved(shapes, op.named(arguments))
        if changed is None:
            return None
        return tuple([changed.get(n, a) for n, a in zip(op.argument_names, arguments, strict=True)])

    def _is_convolution(self, call: Call) -> bool:
        """True for a convolution that is worth transposing for."""
        if not call.op.heavy or self._arguments[call.outs] is None:
            return False
        named = call.op.named(call.arguments)
        weight = named["shape"] if call.op is convolve_filter_grad else self._specs[call.ins[1]].shape
        return not is_by_elements(weight, named)

    def _wanted_last(self) -> set[int]:
        """The values that convolutions depend on without any function between that would have to transpose them."""
        wanted: set[int] = set()
        for call in reversed(self._given):
            through = self._arguments[call.outs] is not None and not wanted.isdisjoint(call.outs)
            if through or self._is_convolution(call):
                wanted.update(call.ins)
        return wanted

    def _moves(self, call: Call) -> bool:
        """True if a call, which can be computed with channels last, should be."""
        (first, *_), ndim = call.ins or (0,), self._specs[call.outs[0]].ndim
        if self._is_convolution(call):
            return True
        if not call.op.diagonal:
            return (first, self._specs[first].ndim) in self._last
        if ndim < 3:
            return False
        # Elements to transpose for either layout.
        to_last = to_first = 0
        for i in call.ins[: call.op.reads]:
            spec = self._specs[i]
            if spec.ndim == ndim and not self._is_repeated(i):
                to_last += spec.size * ((i, ndim) not in self._last)
                to_first += spec.size * (i not in self._first)
        return to_last < to_first or (to_last == to_first and not self._wanted.isdisjoint(call.outs))

    def _is_repeated(self, i: int) -> bool:
        """True for a constant or broadcast value, which XLA transposes for free."""
        call = self._maker.get(i)
        if call is None:
            return False
        return CHANNELS_LAST.get(call.op) is to_shape or (call.op.fuses == "moving" and not call.ins)

    # ---------------------------------------------------------------- the calls anew

    def _write(self, call: Call) -> None:
        self._calls.append(call._replace(ins=tuple([self._as_first(i) for i in call.ins])))
        self._first.update({i: i for i in call.outs})

    def _write_moved(self, call: Call, arguments: tuple[Any, ...]) -> None:
        op, ins = call.op, call.ins
        axes = [self._specs[i].ndim for i in (call.outs[:1] * len(ins) if op.diagonal else ins)]
        # Inputs that an elementwise op does not read still broadcast with the others.
        read = len(ins) if op.reads is None or op.diagonal else op.reads
        taken = [self._as_last(i, n) for i, n in zip(ins[:read], axes, strict=False)]
        taken += [self._first[i] if i in self._first else self._last[i, self._specs[i].ndim] for i in ins[read:]]
        self._apply(op, arguments, taken, call.outs)

    def _apply(self, op: Op, arguments: tuple[Any, ...], ins: Iterable[int], outs: tuple[int, ...]) -> None:
        """Append a call whose results are values of the block with channels last."""
        numbers = []
        for i in outs:
            self._free -= 1
            numbers.append(self._free)
            ndim = self._specs[i].ndim
            if ndim > 2:
                self._last[i, ndim] = self._free
            else:
                self._first[i] = self._free
        self._calls.append(Call(op, arguments, tuple(ins), tuple(numbers)))

    def _converted(self, op: Op, arguments: tuple[Any, ...], number: int) -> int:
        self._free -= 1
        self._calls.append(Call(op, arguments, (number,), (self._free,)))
        return self._free

    def _as_first(self, i: int) -> int:
        if i not in self._first:
            self._first[i] = self._converted(channels_first, (), self._last[i, self._specs[i].ndim])
        return self._first[i]

    def _as_last(self, i: int, ndim: int) -> int:
        """The number of a value with channels last, expanded to broadcast with arrays of `ndim` axes."""
        if ndim < 3 or self._specs[i].ndim == 0:
            return self._as_first(i)
        if (i, ndim) not in self._last:
            self._last[i, ndim] = self._converted(channels_last, (ndim,), self._as_first(i))
        return self._last[i, ndim]
