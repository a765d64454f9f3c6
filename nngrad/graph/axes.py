"""How an op maps the axes of its inputs to those of its output: one declaration, from which both batching and the
independence of rows follow.

An input axis is *carried* to an output axis if the output at index p of that axis depends only on the input at index p
of its own. An op also carries additional leading axes if its arguments can be adapted: those that name axes are
shifted, and those that are shapes get more sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .function import Function


Shape = tuple[int, ...]
Places = tuple[int | None, ...]
"""For each axis of an input, the axis of the output that it is carried to, or None."""
Indices = tuple[tuple[Shape, ...], Shape]
"""The index of each axis of each input, and of each axis of the output."""
Adds = Literal["", "sum", "mean"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisMap:
    """How an op maps the axes of its inputs to those of its outputs."""

    places: Callable[[Function], tuple[Places, ...]]
    """The places of each input's axes; all outputs of an op share them."""
    leading: Callable[[Function, Shape, Shape], Mapping[str, Any]] | None = None
    """The arguments that change if inputs get leading axes of the sizes given, so that the op treats all elements along
    them alike. The shape is the first input's without those axes. None: the op takes no more axes."""
    inputs: tuple[int, ...] | None = None
    """Which inputs can have the leading axes; None: all must, so an input without them is repeated."""
    thin: bool = False
    """Whether `leading` allows axes of size 1 in the first input where other inputs carry longer ones."""
    folded: Callable[[Function, int], Mapping[str, Any]] | None = None
    """If the first axis of those `inputs` and of the outputs is a batch of rows, into which leading axes can be folded:
    the arguments that change for a given number of rows."""
    indices: Callable[[Function], Indices] | None = None
    """The indices of a sum of products."""
    adds: Adds = ""
    """For an op of one input: whether the output is the sum or the mean of the elements along the mixed axes."""
    before: Callable[[Function, Shape], Shape | None] | None = None
    """`condition_before` for an op of one input whose `places` do not determine it."""

    def condition_before(self, f: Function, condition: Shape) -> Shape | None:
        """Carry a condition on the output of `f` back to its input, as the shape of the same condition: elements of the
        output that fail it do not depend on elements of the input that satisfy it, and vice versa. None if the
        condition varies along an axis that is not carried, or if axes would change places."""
        if self.before is not None:
            return self.before(f, condition)
        (places,) = self.places(f)
        if len(condition) != len(f.specs[0].shape):
            return None
        carried = [b for b in places if b is not None and condition[b] != 1]
        if carried != sorted(carried) or sum([n != 1 for n in condition]) != len(carried):
            return None
        return tuple([1 if b is None else condition[b] for b in places])


Key = tuple[Any, ...]
"""A part of an array that an op takes out or puts in unchanged, as in `x[key]`: for each axis an index, which drops it,
or a window `(start, count, step)`; and None for a new axis of size 1."""
Keys = Callable[[tuple[Shape, ...], Mapping[str, Any]], tuple[Key, ...]]
"""From the shapes of the inputs, and the arguments by name, to a key for each part."""


def axes_carried(f: Function) -> tuple[Places, ...]:
    """The output axis that each axis of each input of `f` is carried to, as declared."""
    if f.op.axes is not None:
        return f.op.axes.places(f)
    ndim = len(f.specs[0].shape)
    return tuple([tuple(range(ndim - x.ndim, ndim)) for x in f.inputs[: f.op.reads]])
