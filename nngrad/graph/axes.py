"""How axes go through an op: one declaration, from which both the independence of rows and batching follow.

An axis of an input is *carried* to an axis of the output where the output at place p of that axis depends on the input
at place p of its own alone. An op carries one more axis that is put in front of all others, too, if its arguments can
say so: those that name axes count one further, those that are shapes get one size more.

    mixes("axis", none=-1)          softmax: the axes named by an argument are mixed, and stay
    reduces("axis")                 sum: they vanish, or stay with size 1 where `keepdims` says so
    inserts("axis")                 stack: an axis is put in
    rowwise("(n,n)->()")            det: the last axes are one thing, as in NumPy's generalized ufuncs; those before
                                    are rows
    contracts(indices)              matmul, einsum: a sum of products over indices
    AxisMap(places=..., leading=...)    whatever else, as functions of shapes and arguments
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .arguments import axes_of

if TYPE_CHECKING:
    from .function import Function

Shape = tuple[int, ...]
Places = tuple[int | None, ...]
"""For each axis of an input the axis of the output that it is carried to, or None."""
Indices = tuple[tuple[Shape, ...], Shape]
"""For each input the index of each of its axes, and those of the output."""
Adds = Literal["", "sum", "mean"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisMap:
    """What becomes of the axes of the inputs of an op."""

    places: Callable[[Function], tuple[Places, ...]]
    """Of each input; those of an op with several outputs are the same for each."""
    leading: Callable[[Function, Shape, Shape], Mapping[str, Any]] | None = None
    """The arguments that change where inputs get leading axes of the sizes given; with these the op does the same for
    all elements along them. The shape is that of the first input without those axes. None: it takes no more axes."""
    inputs: tuple[int, ...] | None = None
    """Which inputs can have the leading axes; None: all at once, so that what does not have them is repeated."""
    thin: bool = False
    """Whether `leading` allows for axes of size 1, in the first input, where that has longer ones that are carried."""
    folded: Callable[[Function, int], Mapping[str, Any]] | None = None
    """Where the first axis of those `inputs` and of the outputs is one of rows, into which leading axes can be folded:
    the arguments that change where there are so many rows."""
    indices: Callable[[Function], Indices] | None = None
    """For a sum of products over indices: which they are."""
    adds: Adds = ""
    """What the output, of an op of one input, is of the elements along the axes that are mixed: their sum, or that over
    their number."""
    before: Callable[[Function, Shape], Shape | None] | None = None
    """For an op of one input, where `places` do not say it all: as `condition_before`."""

    def condition_before(self, f: Function, condition: Shape) -> Shape | None:
        """The shape to which a condition on the output is to be reshaped to be the same condition on the input of `f`:
        what it does not hold of in the output does not depend on what it does not hold of in the input. None where it
        varies along an axis that is not carried, or axes would have to change places."""
        if self.before is not None:
            return self.before(f, condition)
        (places,) = self.places(f)
        if len(condition) != len(f.specs[0].shape):
            return None
        kept = [b for b in places if b is not None and condition[b] != 1]
        if kept != sorted(kept) or sum([n != 1 for n in condition]) != len(kept):
            return None
        return tuple([1 if b is None else condition[b] for b in places])


def named(f: Function, argument: str, none: int | None) -> tuple[int, ...]:
    """The axes of the first input that an argument names, not negative; None stands for `none`, or for all."""
    value = f.args[argument]
    return axes_of(none if value is None else value, len(f.inputs[0].shape))


def mixes(argument: str, none: int | None = None) -> AxisMap:
    """The axes that an argument names are mixed, and stay where they are; all inputs have them.

    Args:
        argument: The name of the argument.
        none: The axis that None stands for.
    """

    def places(f: Function) -> tuple[Places, ...]:
        mixed = named(f, argument, none)
        return tuple([tuple([None if a in mixed else a for a in range(x.ndim)]) for x in f.inputs])

    def leading(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
        axes = tuple([a + len(size) for a in named(f, argument, none)])
        return {argument: axes if isinstance(f.args[argument], tuple) else axes[0]}

    return AxisMap(places=places, leading=leading)


def reduces(argument: str, one: bool = False, adds: Adds = "") -> AxisMap:
    """The axes that an argument names are mixed, and vanish; where the op has an argument `keepdims`, and it is true,
    they stay with size 1.

    Args:
        argument: The name of the argument, of which None stands for all axes.
        one: Whether it names just one.
        adds: As in `AxisMap`.
    """

    def places(f: Function) -> tuple[Places, ...]:
        gone = named(f, argument, None)
        kept = [a for a in range(f.inputs[0].ndim) if a not in gone]
        stay = f.args.get("keepdims", False)
        return (tuple([(a if stay else kept.index(a)) if a in kept else None for a in range(f.inputs[0].ndim)]),)

    def leading(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
        axes = tuple([a + len(size) for a in named(f, argument, None)])
        return {argument: axes[0] if one else axes}

    return AxisMap(places=places, leading=leading, adds=adds)


def inserts(argument: str) -> AxisMap:
    """The inputs, all of one shape, become the elements along an axis that an argument names."""

    def place(f: Function) -> int:
        return int(f.args[argument]) % (f.inputs[0].ndim + 1)

    def places(f: Function) -> tuple[Places, ...]:
        return tuple([tuple([a + (a >= place(f)) for a in range(x.ndim)]) for x in f.inputs])

    return AxisMap(places=places, leading=lambda f, size, shape: {argument: place(f) + len(size)})


def rowwise(signature: str | Callable[[Function], tuple[int, int]], shape: str = "") -> AxisMap:
    """The last axes of each input are one thing, and any number of axes, the same for all, may come before.

    Args:
        signature: As of a generalized ufunc, "(m,n)->(n)"; or a function that says how many of the last axes of the
            input, and of the output, are mixed.
        shape: The argument that is the shape of the output, if there is one.
    """

    def core(f: Function) -> tuple[int, int]:
        if callable(signature):
            return signature(f)
        before, after = [part.strip("()").split(",") for part in signature.split("->")]
        return len([n for n in before if n]), len([n for n in after if n])

    def places(f: Function) -> tuple[Places, ...]:
        mixed = core(f)[0]
        return tuple([(*range(x.ndim - mixed), *(None,) * mixed) for x in f.inputs])

    def leading(f: Function, size: Shape, own: Shape) -> Mapping[str, Any]:
        return {shape: (*size, *f.args[shape])} if shape else {}

    return AxisMap(places=places, leading=leading)


def contracts(indices: Callable[[Function], Indices]) -> AxisMap:
    """A sum of products over indices.

    Args:
        indices: For each input the index of each of its axes, and those of the output. Where an index stands for axes
            of size 1 and others, the former are repeated.
    """

    def places(f: Function) -> tuple[Places, ...]:
        terms, output = indices(f)
        return tuple([tuple([output.index(i) if i in output else None for i in term]) for term in terms])

    return AxisMap(places=places, indices=indices)


def rows(shape: str = "") -> AxisMap:
    """The first axis of the first input and of the output is one of rows, and there can be no other axes of that kind:
    the batch of a convolution.

    Args:
        shape: The argument that is the shape of the output, if there is one.
    """

    def folded(f: Function, count: int) -> Mapping[str, Any]:
        return {shape: (count, *f.args[shape][1:])} if shape else {}

    return AxisMap(places=lambda f: row_places(f, (0,)), folded=folded, inputs=(0,))


def rows_of(inputs: tuple[int, ...]) -> AxisMap:
    """The first axis of these inputs and of all outputs is one of rows, of which there can be any number."""
    return AxisMap(places=lambda f: row_places(f, inputs), folded=lambda f, count: {}, inputs=inputs)


def row_places(f: Function, inputs: Container[int]) -> tuple[Places, ...]:
    """The places of axes where those of rows are the first ones of these inputs and of all outputs."""
    return tuple([
        (0 if i in inputs else None, *(None,) * (x.ndim - 1)) if x.ndim else () for i, x in enumerate(f.inputs)
    ])
