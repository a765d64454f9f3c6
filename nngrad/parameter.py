"""Parameters by name: a tree of scopes that is the process's, and the scope that each thread or asyncio task is in."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph import Variable
from .graph.scopes import Layer, WithBlock

if TYPE_CHECKING:  # nngrad puts them here, as nnabla has it
    from .files.parameter_files import load_parameters as load_parameters
    from .files.parameter_files import save_parameters as save_parameters

Scope = OrderedDict[str, Any]
"""Parameters and further scopes by name."""
RESERVED = "__metadata__"
"""The name under which files of parameters keep facts, so that no parameter can have it."""
Initializer = Callable[[tuple[int, ...]], Any]

_root: Scope = OrderedDict()
_lock = threading.RLock()
_entered: ContextVar[tuple[Layer, ...]] = ContextVar("parameter_scopes", default=())
_made: ContextVar[list[tuple[Scope, str, Variable]] | None] = ContextVar("parameters_made", default=None)
"""Where the parameters are listed that the outermost call of a parametric function has made."""


# ---------------------------------------------------------------- scopes


class ParameterScope(WithBlock):
    """The `with` block of `parameter_scope`; it may also decorate a function."""

    def __init__(self, name: str, scope: Scope | None) -> None:
        super().__init__()
        _check_name(name)
        if scope is not None and not isinstance(scope, dict):
            raise TypeError(f"parameter_scope: scope must be a scope as `with parameter_scope(...) as scope` gives it, "
                            f"got {type(scope).__name__}")
        self._name = name
        self._scope = scope

    @staticmethod
    def layers() -> tuple[Layer, ...]:
        """The scopes that this thread or task has entered."""
        return _entered.get()

    @staticmethod
    def put(layers: tuple[Layer, ...]) -> None:
        """Let these be the scopes that it has entered."""
        _entered.set(layers)

    def value(self) -> Scope:
        """The scope that an entry leads to."""
        return _inner(get_current_parameter_scope() if self._scope is None else self._scope, self._name)


def parameter_scope(name: str, scope: Scope | None = None) -> ParameterScope:
    """Enter a scope, within a `with` block or a decorated function: parameters made in it carry its name in front.

    Args:
        name: Name of the scope below the present one; 'a/b' enters two, and '' stays where it is.
        scope: Where to start in place of the present scope; what another `with parameter_scope(...) as
            scope` gave, or an empty `OrderedDict` for parameters that the registry does not hold.

    Raises:
        ValueError: A parameter has that name.
    """
    return ParameterScope(name, scope)


def get_current_parameter_scope() -> Scope:
    """The scope that this thread or asyncio task is in."""
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
    """The scope at `name` below `scope`, made where it is missing."""
    _check_name(name)
    inner = scope.get(name)
    return inner if inner.__class__ is OrderedDict else _descend(scope, _parts(name))


def _descend(scope: Scope, names: list[str]) -> Scope:
    """The scope at `names` below `scope`, made where it is missing."""
    with _lock:
        for i, name in enumerate(names):
            inner = scope.get(name)
            if inner is None:
                inner = scope[name] = OrderedDict()
            elif isinstance(inner, Variable):
                raise ValueError(f"{'/'.join(names[: i + 1])!r} is a parameter, so it cannot be a scope as well")
            scope = inner
    return scope


def _find(scope: Scope, names: list[str]) -> Any:
    """Returns what is at `names` below `scope`: a parameter, a scope, or None."""
    found: Any = scope
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


# ---------------------------------------------------------------- parameters


def get_parameter(key: str) -> Variable | None:
    """The parameter at `key` below the present scope; None if there is none."""
    scope = get_current_parameter_scope()
    found = scope.get(key)
    if found is None:
        found = _find(scope, _parts(key))
    return found if isinstance(found, Variable) else None


def set_parameter(key: str, param: Variable) -> None:
    """Put `param` at `key` below the present scope, in place of one that is there.

    Raises:
        TypeError: `key` is not a str, or `param` is not a Variable.
        ValueError: `key` is empty, names a scope, or is a name that files cannot hold; or a parameter is where
            a scope should be.
    """
    path = _parts(key, "set_parameter: key")
    if not isinstance(param, Variable):
        raise TypeError(f"set_parameter: {key!r} must be a Variable, got {type(param).__name__}")
    if not path:
        raise ValueError("set_parameter: key is empty")
    _put(path, param)


def _put(path: list[str], param: Variable, made: list[tuple[Scope, str, Variable]] | None = None) -> None:
    """Put `param` at `path` below the present scope, and list it in `made` first, so that it can be taken out again."""
    name = path[-1]
    if name == RESERVED:
        raise ValueError(f"a parameter cannot have the name {name!r}: files keep something else under it")
    if param.parent is None and param.cell.axes is None:
        param.cell.axes = ()  # whole on each device of a mesh: it is no batch
    with _lock:
        scope = _descend(get_current_parameter_scope(), path[:-1])
        if isinstance(scope.get(name), dict):
            raise ValueError(f"{'/'.join(path)!r} is a scope with parameters of its own, so it cannot be a parameter")
        if made is not None:
            made.append((scope, name, param))
        scope[name] = param


def pop_parameter(key: str) -> Variable | None:
    """Take the parameter at `key` out and return it; None if there is none."""
    *path, name = _parts(key) or [""]
    with _lock:
        scope = _find(get_current_parameter_scope(), path)
        if isinstance(scope, dict) and isinstance(scope.get(name), Variable):
            found: Variable = scope.pop(name)
            return found
    return None


def clear_parameters() -> None:
    """Forget all parameters and scopes below the present scope."""
    with _lock:
        get_current_parameter_scope().clear()


def get_parameters(
    params: OrderedDict[str, Variable] | None = None, path: str = "", grad_only: bool = True
) -> OrderedDict[str, Variable]:
    """The parameters below the present scope, by name, in the order in which they were made.

    They are the very Variables that parametric functions use.

    Args:
        params: Where given, they are added to it.
        path: Put in front of the names.
        grad_only: Leave out those whose `need_grad` is False.
    """
    found = OrderedDict() if params is None else params
    with _lock:
        for name, param in _walk(get_current_parameter_scope(), path):
            if not grad_only or param.need_grad:
                found[name] = param
    return found


def _walk(scope: Scope, path: str) -> Iterator[tuple[str, Variable]]:
    for key, value in scope.items():
        name = f"{path}/{key}" if path else key
        if isinstance(value, Variable):
            yield name, value
        else:
            yield from _walk(value, name)


def every_parameter() -> list[tuple[str, Variable]]:
    """All parameters that are registered, by their names, whatever scope this thread or task is in."""
    with _lock:
        return list(_walk(_root, ""))


def path_of_scope(scope: Scope) -> str:
    """The names that lead to a scope, 'block1/conv': from the root, or else from the outermost of the scopes that this
    thread or task has entered below which it is; empty where none leads there."""
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
    dtype: object = "float32",
) -> Variable:
    """The parameter at `name` below the present scope, made if there is none.

    Args:
        name: Its name; 'a/b' is the parameter b in the scope a.
        shape: Its shape; may be left out for an array as `initializer`, or if the parameter is there.
        initializer: Called with the shape if the parameter is made; or an array; None for zeros.
        need_grad: What its `need_grad` is, and becomes if it is another; False in any case for integers and bools.
        as_need_grad: Where it differs from `need_grad`, the result is not the parameter itself but a
            Variable that shares its data, with that `need_grad`: how `fix_parameters` fixes them.
        dtype: Its dtype if it is made.

    Raises:
        ValueError: The parameter has another shape, or the initializer gave one.
    """
    entered = _entered.get()
    param = (entered[-1][1] if entered else _root).get(name)
    if param.__class__ is not Variable:
        param = _found_or_made(name, shape, initializer, need_grad, dtype)
    elif shape is not None and param.spec.shape != shape:
        _check_shape(name, param, shape)
    if param._need_grad is not need_grad:
        param.need_grad = param.spec.differentiable and need_grad
    if as_need_grad is None or as_need_grad is need_grad or as_need_grad == param.need_grad:
        result: Variable = param
        return result
    return param.get_unlinked_variable(need_grad=as_need_grad)


def in_scopes(
    names: Iterable[str], function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]
) -> Any:
    """`function(*args, **kwargs)`, in the scope that one comes to by `names`, one below the other; if it raises, the
    parameters that were made in it are taken out again. Call it in a context of its own, which it changes."""
    entered = _entered.get()
    scope = entered[-1][1] if entered else _root
    for name in names:
        inner = scope.get(name) if name.__class__ is str else None
        scope = inner if inner.__class__ is OrderedDict else _inner(scope, name)
        entered = (*entered, (None, scope))
    _entered.set(entered)
    if (made := _made.get()) is None:
        _made.set(made := [])
    since = len(made)
    try:
        return function(*args, **kwargs)
    except BaseException:
        with _lock:
            for place, name, param in made[since:]:
                if place.get(name) is param:
                    del place[name]
        raise


def _found_or_made(name: str, shape: Any, initializer: Any, need_grad: bool, dtype: object) -> Variable:
    path = _parts(name, "get_parameter_or_create: name")
    if not path:
        raise ValueError("get_parameter_or_create: name is empty")
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
    """The name of a parameter of the present scope, with the scopes that lead there: from the root, or from that of a
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
            raise ValueError(f"parameter {_full_name(name)!r} does not exist yet: give its shape, or an array as "
                             "initializer")
        shape = initializer.shape
    param = Variable(shape, False, name, dtype)
    param.cell.axes = ()
    param.need_grad = param.spec.differentiable and need_grad
    if initializer is None:
        return param
    if not is_array and not callable(initializer):
        raise TypeError(f"parameter {_full_name(name)!r}: initializer must be a function of the shape, or an array, "
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
            f"parameter {_full_name(name)!r} exists with shape {param.shape}, but {wanted} was requested. Two layers "
            "must not share it: give name= to one (PF.affine(x, 10, name='out')) or put it in a scope of its own; "
            "nn.clear_parameters() starts afresh"
        )
