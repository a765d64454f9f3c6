"""`save_parameters` and `load_parameters`: the parameters of the current scope in files."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import starmap
from operator import call, setitem
from pathlib import Path
from typing import Any

import numpy as np

from ..extend import NdArray, Value, Variable, leaf_of, warn_user
from ..parameter import RESERVED, _lock, _parts, get_current_parameter_scope, get_parameters
from .formats import known_formats
from .replacing import read_whole, write_whole
from .storage import read_arrays, write_arrays

Change = tuple[Callable[[Any, Any, Any], None], Any, Any, Any]
"""`setattr` or `setitem`, followed by its three arguments."""
Names = OrderedDict[str, Any]
"""A tree of scopes, whose leaves are parameter names."""


def save_parameters(
    path: str | Path, params: Mapping[str, Variable] | None = None, extension: str | None = None
) -> None:
    """Write parameters with their dtypes and `need_grad` to a safetensors file, or in one of nnabla's formats.

    The file is replaced atomically: if writing fails or is interrupted, the old file is unchanged. The new file keeps
    the mode and owner of the old one; a symbolic link stays a link.

    Args:
        path: The file name. It ends in '.safetensors' or '.h5', which determines the format, unless `extension` does.
        params: The parameters to write; by default all in the current scope, also those with `need_grad` False.
        extension: '.safetensors' or '.h5', for a `path` with another ending. '.h5' is HDF5 in nnabla's layout, where
            bfloat16 becomes float32.

    Raises:
        ImportError: '.h5' needs the package h5py, which is not installed.
        TypeError: `params` is not a mapping of names to Variables.
        ValueError: The extension is unknown, or `load_parameters` would refuse or change a name in `params`.
        OSError: The file cannot be written, is read-only, or is not a regular file; the message names it.

    Warns:
        UserWarning: There are no parameters to write.
    """
    writable = [name for name, known in known_formats().parameters.items() if known.write is not None]
    extension = _extension(path, extension, writable, "written")
    if params is not None and not isinstance(params, Mapping):
        raise TypeError(f"params: expected Variables by name, got {type(params).__name__}")
    chosen = get_parameters(grad_only=False) if params is None else dict(params)
    for name, param in chosen.items():
        if not isinstance(param, Variable):
            raise TypeError(f"params[{name!r}]: expected a Variable, got {type(param).__name__}")
    _tree_of(chosen, path)
    for name in chosen:
        if "/".join(_parts(name)) != name:
            raise ValueError(f"{path}: {name!r} would be loaded as {'/'.join(_parts(name))!r}; save it by that name")
    cells = [param.data for param in chosen.values()]
    arrays = [np.asarray(array) for array in Value.read(cells)]
    flags = {name: bool(param.need_grad) for name, param in chosen.items()}
    by_name = dict(zip(chosen, arrays, strict=True))
    if extension == ".safetensors":
        write_arrays(path, by_name, {"need_grad": flags})
    elif (write := known_formats().parameters[extension].write) is not None:
        write_whole(path, write(by_name, flags, str(path)))
    if not chosen:
        below = "params is empty" if params is not None else "the current scope has no parameters"
        warn_user(f"save_parameters: {below}, so {path} is empty")


def load_parameters(path: str | Path, extension: str | None = None) -> OrderedDict[str, Variable]:
    """Read parameters from a safetensors file, or in one of nnabla's formats, into the current scope.

    Existing parameters keep their Variables and dtypes and take over the values; missing ones are created. Loading is
    atomic: if anything does not fit, nothing changes, and an interrupt leaves either all old values or all new ones.
    Integers and bools get `need_grad` False whatever the file says.

    nnabla's files may store integers as floats, and floats as integers: they are converted if no value changes.

    Args:
        path: A file of `save_parameters`, any other safetensors file, or a file written by nnabla, with parameters
            ('.h5', '.protobuf') or with a network and its parameters ('.nnp', '.nntxt', '.prototxt').
        extension: One of these, for a `path` with another ending.

    Returns:
        The parameters that were read, by name.

    Raises:
        ImportError: '.h5' needs the package h5py, nnabla's other formats need protobuf; it is not installed.
        ValueError: The file is damaged, names parameters that cannot coexist, or a parameter already exists with
            another shape or another kind of dtype; the message names the file and the parameter.
        OSError: The file cannot be read, or is not a regular file.
    """
    extension = _extension(path, extension, known_formats().parameters, "read")
    order, arrays, flags = _read(path, extension)
    tree = _tree_of(order, path)
    loaded: dict[str, Variable] = {}
    changes: list[Change] = []
    with _lock:
        waiting = [(tree, get_current_parameter_scope(), 1)]
        while waiting:
            names, scope, depth = waiting.pop()
            for part, item in names.items():
                there = scope.get(part)
                if isinstance(item, str):
                    array = arrays[item]
                    if extension != ".safetensors" and isinstance(there, Variable):
                        array = _in_kind_of(there, array)
                    loaded[item], needed = _parameter_for(item, array, flags.get(item), there, path)
                    changes += needed or [(setitem, scope, part, loaded[item])]
                    continue
                if isinstance(there, Variable):
                    raise ValueError(f"{path}: {_name_below(item)!r} needs {_name_below(item, depth)!r} as a scope, "
                                     "but that is a parameter")
                if there is None:
                    there = OrderedDict()
                    changes.append((setitem, scope, part, there))
                waiting.append((item, there, depth + 1))
        _make(changes)
    return OrderedDict((name, loaded[name]) for name in order)


def _extension(path: str | Path, extension: str | None, others: Iterable[str], done: str) -> str:
    """The extension of a file, '.safetensors' or one of `others`; `done` is the verb for the error message."""
    ending = extension if extension is not None else Path(path).suffix
    formats = (".safetensors", *others)
    if ending not in formats:
        raise ValueError(f"{path}: cannot be {done} as {ending!r}; the extension must be one of {', '.join(formats)}")
    return ending


def _read(path: str | Path, extension: str) -> tuple[list[str], dict[str, np.ndarray[Any, Any]], dict[str, bool]]:
    """The names in a file in order, the arrays, and `need_grad` where the file records it."""
    if extension != ".safetensors":
        held = known_formats().parameters[extension].read(read_whole(path), str(path))
        return list(held.arrays), held.arrays, held.need_grad
    arrays, facts = read_arrays(path)
    flags = facts.get("need_grad", {})
    if not isinstance(flags, dict) or not all([isinstance(flag, bool) for flag in flags.values()]):
        raise ValueError(f"{path}: damaged: need_grad must be true or false for each name, got {flags!r:.80}")
    order = [name for name in flags if name in arrays] + [name for name in arrays if name not in flags]
    return order, arrays, flags


def _tree_of(names: Iterable[str], path: str | Path) -> Names:
    """Parameter names as a tree of scopes. A ValueError names parameters that cannot coexist."""
    tree: Names = OrderedDict()
    for name in names:
        *scopes, last = _parts(name, "params") or [""]
        if last in ("", RESERVED):
            raise ValueError(f"{path}: a parameter cannot be named {name!r}")
        inner = tree
        for part in scopes:
            inner = inner.setdefault(part, OrderedDict())
            if isinstance(inner, str):
                raise ValueError(f"{path}: {name!r} needs {inner!r} as a scope, but that is a parameter")
        other = inner.setdefault(last, name)
        if isinstance(other, dict):
            raise ValueError(f"{path}: {_name_below(other)!r} needs {name!r} as a scope, but that is a parameter")
        if other != name:
            raise ValueError(f"{path}: {other!r} and {name!r} name the same parameter")
    return tree


def _name_below(names: Any, depth: int | None = None) -> str:
    """The first parameter in `names`, or the first `depth` components of its path."""
    while not isinstance(names, str):
        names = next(iter(names.values()))
    return "/".join(_parts(names)[:depth])


def _parameter_for(
    name: str, array: np.ndarray[Any, Any], flag: bool | None, there: Any, path: str | Path
) -> tuple[Variable, list[Change]]:
    """The parameter that takes over a file's value, new if none exists, and the changes to make to it.

    Args:
        name: Its name in the file.
        array: Its value in the file.
        flag: Its `need_grad` in the file, or None if not recorded.
        there: The entry of that name in the current scope.
        path: The file.
    """
    if isinstance(there, dict):
        raise ValueError(f"{path}: {name!r} is a parameter in the file, but a scope here")
    if there is None:
        param = leaf_of(NdArray.from_numpy_array(array, array.dtype), name)
        param.need_grad = param.spec.differentiable and flag is not False
        return param, []
    param = there
    value = _fitting_cell(name, param, array, path).held
    changes: list[Change] = [(setattr, param.cell, "held", value), (setattr, param.cell, "variable", None)]
    if flag is not None:
        changes.append((setattr, param, "_need_grad", param.spec.differentiable and flag))
    return param, changes


def _in_kind_of(param: Variable, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`array` converted to integers or floats as `param` has them, unless a value would change."""
    if (array.dtype.kind == "f") == param.spec.differentiable:
        return array
    with np.errstate(invalid="ignore"):
        converted = array.astype(param.dtype)
        return converted if np.array_equal(converted.astype(array.dtype), array) else array


def _fitting_cell(name: str, param: Variable, array: np.ndarray[Any, Any], path: str | Path) -> NdArray:
    """An NdArray that holds `array` in the dtype of `param`."""
    if param.shape != array.shape:
        raise ValueError(f"{path}: parameter {name!r} has shape {array.shape} in the file, but {param.shape} here")
    cell = NdArray.from_numpy_array(array, array.dtype)
    if cell.spec.differentiable != param.spec.differentiable:
        raise ValueError(f"{path}: parameter {name!r} is {array.dtype.name} in the file, but {param.dtype.name} here")
    return cell if cell.spec is param.spec else cell.cast(param.dtype)


def _make(changes: list[Change]) -> None:
    """Make all changes in one C call, so that neither a signal handler nor another thread can come between."""
    before = [getattr(target, key) for function, target, key, _ in changes if function is setattr]
    with Value.writing:
        deque(starmap(call, changes), maxlen=0)
    del before  # releasing the old values may run code, so it comes last
