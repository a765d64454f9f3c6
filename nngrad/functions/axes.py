"""How ops declare what they do with axes (`AxisMap`), in a few words; and the axes that arguments name.

    mixes("axis", none=-1)          softmax: the axes named by an argument are mixed, and stay
    reduces("axis")                 sum: they vanish, or stay with size 1 where `keepdims` says so
    inserts("axis")                 stack: a new axis is inserted
    rowwise("(n,n)->()")            det: the last axes are core dimensions, as in NumPy's generalized ufuncs; those
                                    before are rows
    contracts(indices)              matmul, einsum: a sum of products over indices
    AxisMap(places=..., leading=...)    anything else, as functions of shapes and arguments
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ..graph import Function
from ..graph.arguments import as_int, coerced
from ..graph.axes import Adds, AxisMap, Indices, Key, Places, Shape


def named(f: Function, argument: str, none: int | None) -> tuple[int, ...]:
    """The axes of the first input that an argument names, non-negative; None stands for `none`, or for all."""
    value = f.args[argument]
    return axes_of(none if value is None else value, len(f.inputs[0].shape))


def mixes(argument: str, none: int | None = None) -> AxisMap:
    """The axes that an argument names are mixed and stay where they are, in all inputs.

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
    """The axes that an argument names are mixed and vanish; if the op has a true argument `keepdims`, they stay with
    size 1.

    Args:
        argument: The name of the argument, of which None stands for all axes.
        one: Whether it names exactly one axis.
        adds: As in `AxisMap`.
    """

    def places(f: Function) -> tuple[Places, ...]:
        gone = named(f, argument, None)
        left = [a for a in range(f.inputs[0].ndim) if a not in gone]
        stay = f.args.get("keepdims", False)
        return (tuple([(a if stay else left.index(a)) if a in left else None for a in range(f.inputs[0].ndim)]),)

    def leading(f: Function, size: Shape, shape: Shape) -> Mapping[str, Any]:
        axes = tuple([a + len(size) for a in named(f, argument, None)])
        return {argument: axes[0] if one else axes}

    return AxisMap(places=places, leading=leading, adds=adds)


def inserts(argument: str) -> AxisMap:
    """The inputs, all of one shape, are stacked along the axis that an argument names."""

    def place(f: Function) -> int:
        return int(f.args[argument]) % (f.inputs[0].ndim + 1)

    def places(f: Function) -> tuple[Places, ...]:
        return tuple([tuple([a + (a >= place(f)) for a in range(x.ndim)]) for x in f.inputs])

    return AxisMap(places=places, leading=lambda f, size, shape: {argument: place(f) + len(size)})


def rowwise(signature: str | Callable[[Function], tuple[int, int]], shape: str = "") -> AxisMap:
    """The last axes of each input are core dimensions; any number of leading axes, the same for all, may precede them.

    Args:
        signature: A generalized ufunc's, such as "(m,n)->(n)"; or a function that returns how many of the last axes
            of the input, and of the output, are mixed.
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

    def leading(f: Function, size: Shape, sizes: Shape) -> Mapping[str, Any]:
        return {shape: (*size, *f.args[shape])} if shape else {}

    return AxisMap(places=places, leading=leading)


def contracts(indices: Callable[[Function], Indices]) -> AxisMap:
    """A sum of products over indices.

    Args:
        indices: The index of each axis of each input and of the output. If an index stands for axes of size 1 and
            longer ones, the former are broadcast.
    """

    def places(f: Function) -> tuple[Places, ...]:
        terms, output = indices(f)
        return tuple([tuple([output.index(i) if i in output else None for i in term]) for term in terms])

    return AxisMap(places=places, indices=indices)


def rows(shape: str = "", inputs: tuple[int, ...] = (0,)) -> AxisMap:
    """The first axis of these inputs and of all outputs is a batch of rows, the only one possible: the batch of a
    convolution.

    Args:
        shape: The argument that is the shape of the output, if there is one.
        inputs: The inputs.
    """

    def folded(f: Function, count: int) -> Mapping[str, Any]:
        return {shape: (count, *f.args[shape][1:])} if shape else {}

    return AxisMap(places=lambda f: row_places(f, inputs), folded=folded, inputs=inputs)


def row_places(f: Function, inputs: Container[int]) -> tuple[Places, ...]:
    """The places where the first axis of these inputs and of all outputs is one of rows."""
    return tuple([
        (0 if i in inputs else None, *(None,) * (x.ndim - 1)) if x.ndim else () for i, x in enumerate(f.inputs)
    ])


# ---------------------------------------------------------------- keys of parts, for ops that split arrays or join them


def told_by_key(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op with one part, given by its argument `key`."""
    return (arguments["key"],)


def entries(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op that splits its input into the entries along its argument `axis`."""
    (shape,) = shapes
    axis = arguments["axis"] % len(shape)
    return tuple([_across(shape, axis, k) for k in range(shape[axis])])


def layers(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op that stacks its inputs along a new axis `axis`."""
    shape, axis = shapes[0], arguments["axis"] % (len(shapes[0]) + 1)
    return tuple([_across((*shape[:axis], len(shapes), *shape[axis:]), axis, k) for k in range(len(shapes))])


def stretches(shapes: tuple[Shape, ...], arguments: Mapping[str, Any]) -> tuple[Key, ...]:
    """For an op that concatenates its inputs along their axis `axis`."""
    axis = arguments["axis"] % len(shapes[0])
    keys, start = [], 0
    for shape in shapes:
        keys.append(_across(shape, axis, (start, shape[axis], 1)))
        start += shape[axis]
    return tuple(keys)


def _across(shape: Shape, axis: int, entry: Any) -> Key:
    """The key of everything at `entry` along one axis."""
    return tuple([entry if a == axis else (0, n, 1) for a, n in enumerate(shape)])

# ---------------------------------------------------------------- by number


def axes_of(axis: int | Sequence[int] | None, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """The axes that `axis` names in an array of `ndim` axes, non-negative and ascending; None names all."""
    if axis is None:
        return tuple(range(ndim))
    named_axes = (axis,) if isinstance(axis, int) else axis
    axes = {axis_of(a, ndim, name) for a in named_axes}
    if len(axes) != len(named_axes):
        raise ValueError(f"{name} {axis} has duplicate axes")
    return tuple(sorted(axes))


def axis_of(axis: int, ndim: int, name: str = "axis") -> int:
    """The axis that `axis` names in an array of `ndim` axes, as a non-negative number."""
    if axis.__class__ is not int:
        axis = coerced(as_int, axis, name)
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} {axis} is out of range for an array of {ndim} axes")
    return axis % ndim


def per_axis(
    value: int | Sequence[int] | None, name: str, count: int, default: int, lowest: int
) -> tuple[int, ...]:
    """`value` with one entry per spatial axis: a single entry holds for all `count` axes, None means `default`."""
    if value is None:
        return (default,) * count
    entries = (value,) if isinstance(value, int) else tuple(value)
    if len(entries) == 1:
        entries = entries * count
    if len(entries) != count:
        raise ValueError(f"{name} has {len(entries)} entries for {count} spatial axes; give one per axis, or one for "
                         "all")
    if min(entries, default=lowest) < lowest:
        raise ValueError(f"{name} must be at least {lowest}, got {entries}")
    return entries
