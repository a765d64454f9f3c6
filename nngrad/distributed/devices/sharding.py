"""`nn.shard`: how parameters and values are divided over the axes of a mesh."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, overload

from jax.sharding import PartitionSpec

from ... import functions as F
from ...graph import Variable, build_options
from ...graph.mesh import Axes
from ...parameter import get_parameters

Spec: TypeAlias = "str | PartitionSpec | tuple[str | tuple[str, ...] | None, ...] | None"
"""How an array is divided: for each of its axes an axis of the mesh, several in a tuple, or None; the name of an axis
alone stands for whichever of the array's axes is the largest that is divisible; None: whole on each device."""


@overload
def shard(what: Variable, spec: Spec) -> Variable: ...


@overload
def shard(what: str, spec: Spec) -> OrderedDict[str, Variable]: ...


def shard(what: Variable | str, spec: Spec) -> Variable | OrderedDict[str, Variable]:
    """Say how parameters, inputs or values in the middle of a graph are divided over the axes of a mesh.

    Parameters are whole on each device unless this says otherwise. It changes where arrays lie, and no result. The
    optimizer's state of a parameter is divided as the parameter is. Without a mesh all of it is without effect.

        nn.shard("*/W", "data")                       # fully sharded data parallel
        nn.shard("up/affine/W", (None, "model"))      # tensor parallel: the columns,
        nn.shard("down/affine/W", ("model", None))    # and then the rows
        h = nn.shard(h, ("data", None, "model"))      # a value, and its gradients

    Args:
        what: A leaf, which is divided so from its next use on; an output of a function, which is divided so wherever
            the result is used, and so are all its gradients; or a pattern of names of parameters below the present
            scope, in which `*` stands for any characters, those of further scopes included.
        spec: For each axis of the array the name of an axis of the mesh, or several in a tuple, or None; what is left
            out is None. Or a `jax.sharding.PartitionSpec`. A name alone divides the largest axis that is divisible by
            the number of devices, and nothing where none is. None: whole on each device.

    Returns:
        The Variable; for a pattern the parameters that it has matched, by name.

    Raises:
        TypeError: `what` or `spec` is of the wrong kind.
        ValueError: No parameter matches, an axis of the mesh is named twice, or there are more names than axes. Within
            a mesh also: it has no such axis, or a size is not divisible. Else that is said when a mesh uses it.
    """
    axes = _axes_of(spec)
    if isinstance(what, Variable):
        return _sharded(what, axes, f"Variable {what.name!r}" if what.name else "the Variable")
    if not isinstance(what, str):
        raise TypeError(f"what: expected a Variable or a pattern of names of parameters, got {type(what).__name__}")
    known = get_parameters(grad_only=False)
    matched = OrderedDict((name, p) for name, p in known.items() if fnmatchcase(name, what))
    if not matched:
        raise ValueError(f"what: no parameter matches {what!r}; below the present scope there are "
                         f"{', '.join(map(repr, known)) or 'none yet: call it after the functions that make them'}")
    for name, p in matched.items():
        _check(p, axes, f"parameter {name!r}")
    for p in matched.values():
        _sharded(p, axes, "")
    return matched


def shard_parameters(sharding: Spec | Mapping[str, Spec]) -> None:
    """Divide the parameters of the present scope, as the argument `sharding` of parametric functions has it: for names
    or patterns of them how each is divided; without names, for all of them."""
    given = sharding if isinstance(sharding, Mapping) else {"*": sharding}
    for pattern, spec in given.items():
        shard(pattern, spec)


def _sharded(x: Variable, axes: Axes | str, name: str) -> Variable:
    """`x`, divided so from now on."""
    _check(x, axes, name)
    if x.parent is not None:
        divided: Variable = F.sharding_constraint(x, axes=axes)
        return divided
    cell = x.cell
    if cell.axes != axes:
        cell.axes = axes
        cell.put(cell.raw())  # another value: whoever holds it in place takes it anew, and moves it
    return x


def _check(x: Variable, axes: Axes | str, name: str) -> None:
    if not isinstance(axes, str) and len(axes) > x.ndim:
        raise ValueError(f"{name}: has {x.ndim} axes, of shape {x.shape}, but spec {axes} is for {len(axes)}")
    mesh = build_options().running.mesh
    if mesh is not None:
        mesh.resolved(axes, x.shape, name)


def _axes_of(spec: Any) -> Axes | str:
    """`spec` as a plain tuple or name, checked."""
    if isinstance(spec, str):
        return spec
    if spec is None:
        return ()
    if not isinstance(spec, tuple | list | PartitionSpec):
        raise TypeError("spec: expected a tuple of names of the mesh's axes or None, one for each axis of the array, "
                        f"or a jax.sharding.PartitionSpec, got {spec!r}")
    axes: list[Any] = []
    for each in spec:
        if isinstance(each, tuple | list) and all([isinstance(name, str) for name in each]):
            axes.append(tuple(each) if len(each) != 1 else each[0])
        elif each is None or isinstance(each, str):
            axes.append(each)
        else:
            raise TypeError(f"spec: {each!r} is not the name of an axis of the mesh, a tuple of names, or None")
    names = [name for each in axes if each for name in ((each,) if isinstance(each, str) else each)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"spec: {', '.join(map(repr, twice))} can divide one axis of an array only, got {spec!r}")
    return tuple([each or None for each in axes])
