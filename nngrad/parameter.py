"""Parameters by name: a process-wide tree of scopes, and the current scope of each thread or asyncio task."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from .extend import Variable, WithBlock, build_options, leaves_of, warn_user

if TYPE_CHECKING:
    from .files.parameter_files import load_parameters as load_parameters
    from .files.parameter_files import save_parameters as save_parameters

Scope = OrderedDict[str, Any]
"""Parameters and nested scopes, by name."""
RESERVED = "__metadata__"
"""The name under which parameter files store metadata, so that no parameter can have it."""
Initializer = Callable[[tuple[int, ...]], Any]

_root: Scope = OrderedDict()
_lock = threading.RLock()
_entered: ContextVar[tuple[tuple[object, Scope], ...]] = ContextVar("parameter_scopes", default=())
_made: ContextVar[list[tuple[Scope, str, Variable]] | None] = ContextVar("parameters_made", default=None)
"""Records the parameters made during the outermost call of a parametric function."""
_dtype: ContextVar[str] = ContextVar("dtype_of_parameters", default="float32")
used_in_call: ContextVar[set[Any] | None] = ContextVar("layers_used_in_call", default=None)
"""Records the layers without a name of their own during a call of a Module."""


# ---------------------------------------------------------------- scopes


class ParameterScope(WithBlock):
    """The `with` block of `parameter_scope`; it can also decorate a function."""

    def __init__(self, name: str, scope: Scope | None) -> None:
        super().__init__()
        _check_name(name)
        if scope is not None and not isinstance(scope, dict):
            raise TypeError(f"parameter_scope: scope must come from `with parameter_scope(...) as scope`, "
                            f"got {type(scope).__name__}")
        self._name = name
        self._scope = scope

    @staticmethod
    def layers() -> tuple[tuple[object, Scope], ...]:
        """The scopes that this thread or task has entered."""
        return _entered.get()

    @staticmethod
    def put(layers: tuple[tuple[object, Scope], ...]) -> None:
        """Set the scopes that this thread or task has entered."""
        _entered.set(layers)

    def value(self) -> Scope:
        """The scope that entering the block leads to."""
        return _inner(get_current_parameter_scope() if self._scope is None else self._scope, self._name)


def parameter_scope(name: str, scope: Scope | None = None) -> ParameterScope:
    """Enter a scope, in a `with` block or decorated function: names of parameters made in it begin with the scope's.

    Args:
        name: Name of a scope below the current one; 'a/b' enters two, and '' stays in the current one.
        scope: The scope to start from instead of the current one: the result of another
            `with parameter_scope(...) as scope`, or an empty `OrderedDict` for parameters outside the registry.

    Raises:
        ValueError: A parameter has that name.
    """
    return ParameterScope(name, scope)


def get_current_parameter_scope() -> Scope:
    """The current scope of this thread or asyncio task."""
    entered = _entered.get()
    return entered[-1][1] if entered else _root


def _parts(name: str, argument: str = "key") -> list[str]:
    if not isinstance(name, str):
        raise TypeError(f"{argument}: the name of a parameter must be a str, got {name!r}")
    return [part for part in name.split("/") if part]


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"parameter_scope: name must be a str, got {name!r}")


def _inner(scope: Scope, name: str) -> Scope:
    """The scope at `name` below `scope`, created if missing."""
    _check_name(name)
    inner = scope.get(name)
    return inner if inner.__class__ is OrderedDict else _descend(scope, _parts(name))


def _descend(scope: Scope, names: list[str]) -> Scope:
    """The scope at `names` below `scope`, created if missing."""
    with _lock:
        for i, name in enumerate(names):
            inner = scope.get(name)
            if inner is None:
                inner = scope[name] = OrderedDict()
            elif isinstance(inner, Variable):
                raise ValueError(f"{'/'.join(names[: i + 1])!r} is a parameter, so it cannot also be a scope")
            scope = inner
    return scope


def _find(scope: Scope, names: list[str]) -> Any:
    """The parameter or scope at `names` below `scope`, or None."""
    entry: Any = scope
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


# ---------------------------------------------------------------- parameters


def get_parameter(key: str) -> Variable | None:
    """The parameter at `key` below the current scope, or None."""
    scope = get_current_parameter_scope()
    entry = scope.get(key)
    if entry is None:
        entry = _find(scope, _parts(key))
    return entry if isinstance(entry, Variable) else None


def set_parameter(key: str, param: Variable) -> None:
    """Set the parameter at `key` below the current scope, replacing any present one.

    Raises:
        TypeError: `key` is not a str, or `param` is not a Variable.
        ValueError: `key` is empty, names a scope, or is a name that files cannot hold; or a parameter is where
            a scope is needed.
    """
    path = _parts(key, "set_parameter: key")
    if not isinstance(param, Variable):
        raise TypeError(f"set_parameter: {key!r} must be a Variable, got {type(param).__name__}")
    if not path:
        raise ValueError("set_parameter: key must not be empty")
    _put(path, param)


def _put(path: list[str], param: Variable, new: list[tuple[Scope, str, Variable]] | None = None) -> None:
    """Set the parameter at `path` below the current scope, and list it in `new` first, so that it can be removed."""
    name = path[-1]
    if name == RESERVED:
        raise ValueError(f"a parameter cannot be named {name!r}, which file formats reserve")
    if param.parent is None and param.cell.axes is None:
        param.cell.axes = ()  # replicated on a mesh, unlike a batch
    with _lock:
        scope = _descend(get_current_parameter_scope(), path[:-1])
        if isinstance(scope.get(name), dict):
            raise ValueError(f"{'/'.join(path)!r} is a scope with parameters, so it cannot also be a parameter")
        if new is not None:
            new.append((scope, name, param))
        scope[name] = param


def pop_parameter(key: str) -> Variable | None:
    """Remove the parameter at `key` and return it, or None."""
    *path, name = _parts(key) or [""]
    with _lock:
        scope = _find(get_current_parameter_scope(), path)
        if isinstance(scope, dict) and isinstance(scope.get(name), Variable):
            param: Variable = scope.pop(name)
            return param
    return None


def clear_parameters() -> None:
    """Remove all parameters and scopes below the current scope."""
    with _lock:
        get_current_parameter_scope().clear()


def get_parameters(
    params: OrderedDict[str, Variable] | None = None, path: str = "", grad_only: bool = True
) -> OrderedDict[str, Variable]:
    """The parameters below the current scope, by name, in order of creation.

    They are the same Variables that parametric functions use.

    Args:
        params: If given, parameters are added to it.
        path: A prefix for the names.
        grad_only: True leaves out those whose `need_grad` is False.
    """
    parameters = OrderedDict() if params is None else params
    with _lock:
        for name, param in _walk(get_current_parameter_scope(), path):
            if not grad_only or param.need_grad:
                parameters[name] = param
    return parameters


def _walk(scope: Scope, path: str) -> Iterator[tuple[str, Variable]]:
    for key, value in scope.items():
        name = f"{path}/{key}" if path else key
        if isinstance(value, Variable):
            yield name, value
        else:
            yield from _walk(value, name)


def every_parameter() -> list[tuple[str, Variable]]:
    """All registered parameters with their names, whatever scope this thread or task is in."""
    with _lock:
        return list(_walk(_root, ""))


def path_of_scope(scope: Scope) -> str:
    """The path of names to a scope, such as 'block1/conv': from the root, or else from the outermost of the entered
    scopes that contain it, as for a submodule that is called on its own; "" if there is none."""
    with _lock:
        for outer in (_root, *[entered for _, entered in _entered.get()]):
            if outer is scope:
                return ""
            stack: list[tuple[str, Scope]] = [("", outer)]
            while stack:
                path, present = stack.pop()
                for name, inner in present.items():
                    if inner is scope:
                        return path + name
                    if isinstance(inner, OrderedDict):
                        stack.append((f"{path}{name}/", inner))
    return ""


def get_parameter_or_create(
    name: str,
    shape: tuple[int, ...] | list[int] | None = None,
    initializer: Initializer | np.ndarray[Any, Any] | None = None,
    need_grad: bool = True,
    as_need_grad: bool | None = None,
    dtype: object = None,
) -> Variable:
    """The parameter at `name` below the current scope, created if it does not exist.

    Args:
        name: Its name; 'a/b' is the parameter b in the scope a.
        shape: Its shape; optional if `initializer` is an array, or if the parameter exists.
        initializer: A function of the shape, called if the parameter is created; or an array; None for zeros.
        need_grad: Its `need_grad`, also set on an existing parameter; always False for integers and bools.
        as_need_grad: If it differs from `need_grad`, the result is not the parameter itself but a
            Variable that shares its data, with this `need_grad`: `fix_parameters` uses it.
        dtype: Its dtype if it is created; by default float32, and float64 in a layer whose input is float64.

    Raises:
        ValueError: The parameter has another shape, or the initializer returned one.
    """
    entered = _entered.get()
    param = (entered[-1][1] if entered else _root).get(name)
    if param.__class__ is not Variable:
        param = _found_or_made(name, shape, initializer, need_grad, dtype)
    elif shape is not None and param.spec.shape != shape:
        _check_shape(name, param, shape)
    if param.need_grad is not need_grad:
        param.need_grad = param.spec.differentiable and need_grad
    if as_need_grad is None or as_need_grad is need_grad or as_need_grad == param.need_grad:
        result: Variable = param
        return result
    return param.get_unlinked_variable(need_grad=as_need_grad)


def note_unnamed(layer: str) -> None:
    """Note that a layer without a name of its own is used, and warn if the same call of a Module has used it before."""
    used = used_in_call.get()
    if used is None or _made.get() is not None:  # within another layer
        return
    scope = get_current_parameter_scope()
    key = id(scope), layer, build_options().applying.body  # a body may be captured several times
    if key in used:
        path = path_of_scope(scope)
        warn_user(f"{path}{'/' * bool(path)}{layer}: a layer without name= is used again in the same call of a Module, "
                  "so both have the same parameters; pass name= for parameters of its own, or to say that they are "
                  "shared")
    used.add(key)


def in_scopes(
    names: Iterable[str], function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any],
    inp: Any = None,
) -> Any:
    """Call `function(*args, **kwargs)` in the scope at `names`, each nested in the one before; if it raises, remove the
    parameters made in it. If `inp`, the input of the layer, is float64, so are they. Call this in a context of its own,
    because it changes the context."""
    is_wide = inp.__class__ is Variable and inp.spec.dtype == np.float64
    _dtype.set("float64" if is_wide else "float32")
    entered = _entered.get()
    scope = entered[-1][1] if entered else _root
    for name in names:
        inner = scope.get(name) if name.__class__ is str else None
        scope = inner if inner.__class__ is OrderedDict else _inner(scope, name)
        entered = (*entered, (None, scope))
    _entered.set(entered)
    if (new := _made.get()) is None:
        _made.set(new := [])
    since = len(new)
    try:
        result = function(*args, **kwargs)
        if is_wide and since == 0 and any([param.dtype == np.float64 for _, _, param in new]):
            _tell_of_wide_data(inp, "/".join(names))
        return result
    except BaseException:
        with _lock:
            for place, name, param in new[since:]:
                if place.get(name) is param:
                    del place[name]
        raise


def _tell_of_wide_data(inp: Variable, layer: str) -> None:
    """Warn that parameters are float64 if that is only because NumPy's data were."""
    if not inp.need_grad and any([x.cell.by_default and x.dtype == np.float64 for x in leaves_of([inp])]):
        warn_user(f"{layer}: the input is {inp.spec}, so the parameters are float64, and this and all later functions "
                  "compute in float64; this is slow. Pass the data as np.float32, or make Variables within "
                  "nn.context_scope(nn.get_extension_context('cpu')), where float64 arrays become float32. If you want "
                  "float64, say so: nn.Variable.from_numpy_array(data, dtype='float64')")


def _found_or_made(name: str, shape: Any, initializer: Any, need_grad: bool, dtype: object) -> Variable:
    path = _parts(name, "get_parameter_or_create: name")
    if not path:
        raise ValueError("get_parameter_or_create: name must not be empty")
    with _lock:
        param = get_parameter(name)
        if param is None:
            param = _new(name, shape, initializer, need_grad, dtype)
            param.name = _full_name(name)
            _put(path, param, _made.get())
        elif shape is not None:
            _check_shape(name, param, shape)
        return param


def _full_name(name: str) -> str:
    """The name of a parameter in the current scope, with the path of its scopes: from the root, or from the scope of a
    Module, which is below no other."""
    path, outer = "", _root
    for _, scope in _entered.get():
        if scope is not outer:
            for key, inner in reversed(outer.items()):  # a new scope is the last one
                if inner is scope:
                    path = f"{path}{key}/"
                    break
            else:
                path = ""
        outer = scope
    return path + name


def _new(name: str, shape: Any, initializer: Any, need_grad: bool, dtype: object) -> Variable:
    is_array = hasattr(initializer, "shape") and not callable(initializer)
    if shape is None:
        if not is_array:
            raise ValueError(f"parameter {_full_name(name)!r} does not exist yet: pass its shape, or an array as "
                             "initializer")
        shape = initializer.shape
    param = Variable(shape, False, name, _dtype.get() if dtype is None else dtype)
    param.cell.axes = ()
    param.need_grad = param.spec.differentiable and need_grad
    if initializer is None:
        return param
    if not is_array and not callable(initializer):
        raise TypeError(f"parameter {_full_name(name)!r}: initializer must be a function of the shape or an array, "
                        f"got {initializer!r}")
    value = initializer if is_array else initializer(param.shape)
    if tuple(np.shape(value)) != param.shape:
        raise ValueError(f"parameter {_full_name(name)!r} has shape {param.shape}, but its initial value has "
                         f"{np.shape(value)}")
    param.d = value
    return param


def _check_shape(name: str, param: Variable, shape: Any) -> None:
    wanted = Variable(shape).shape
    if param.shape != wanted:
        raise ValueError(
            f"parameter {_full_name(name)!r} exists with shape {param.shape}, but {wanted} was requested. If two "
            "layers share this name, pass name= to one (PF.affine(x, 10, name='out')) or put it in its own scope; "
            "nn.clear_parameters() starts afresh"
        )


def __getattr__(name: str) -> Any:  # nnabla has them here
    if name in ("load_parameters", "save_parameters"):
        return getattr(import_module("nngrad"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
