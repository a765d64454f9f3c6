"""`Module`: a part of a model that owns its parameters."""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import isfunction
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import jax
import numpy as np

from ..extend import Variable, did_you_mean, no_attribute
from ..files.parameter_files import load_parameters, save_parameters
from ..inspection.shown import aligned
from ..parameter import Scope, get_parameters, parameter_scope, set_parameter, used_in_call

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_NOT_IN_SCOPE = re.compile(r"__(?!init__$|call__$)\w+__$")
"""Special methods that do not run in the module's scope."""


def _in_scope(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, run in the scope of its module."""

    @functools.wraps(method)
    def run(self: Module, *args: Any, **kwargs: Any) -> Any:
        with parameter_scope("", self.parameter_scope):
            return method(self, *args, **kwargs)

    return run


class _Calls(Protocol[P, R]):
    """An object with a method `call`."""

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class Module:
    """A part of a model with its own parameters, which may contain other Modules.

    A subclass defines `call`. All its methods run in the module's own parameter scope, so parametric functions in them
    create parameters of this module alone. A Module that is assigned to an attribute is a submodule; its parameters
    belong to the module too, under `@` and the name of the attribute. So do those of Modules in lists, tuples and
    dicts, under the name of the attribute and their index or key (`@blocks.0/affine/W`). Leaves with `need_grad` in
    attributes, such as those of `nn.Parameter`, are parameters:

        class Block(nn.Module):
            def __init__(self, width):
                self.width = width

            def call(self, x):
                return F.relu(PF.affine(x, self.width))

        class Network(nn.Module):
            def __init__(self):
                self.first, self.rest = Block(8), [Block(8), Block(8)]
                self.scale = nn.Parameter(1.0)

            def call(self, x):
                for block in (self.first, *self.rest):
                    x = block(x)
                return PF.affine(x, 1) * self.scale

        network = Network()
        y = network(x)
        network.get_parameters()        # @first/affine/W, @first/affine/b, @rest.0/affine/W, ..., scale, affine/W, ...
    """

    _recursive_attrs = ("training",)
    """Attributes that are also set on submodules."""

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if isfunction(method) and not _NOT_IN_SCOPE.match(name):
                setattr(cls, name, _in_scope(method))

    def __call__(self: _Calls[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result of `call`; type checkers see its signature."""
        before = used_in_call.set(set())
        try:
            result = self.call(*args, **kwargs)
        finally:
            used_in_call.reset(before)
        self.__dict__["_called"] = True
        return result

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The forward computation, which subclasses define."""
        raise NotImplementedError(f"{type(self).__name__} must define the method `call`, its forward computation")

    # ---------------------------------------------------------------- the tree of modules

    @property
    def submodules(self) -> OrderedDict[str, Module]:
        """The submodules by name."""
        self._find()
        return OrderedDict(self._named)

    @property
    def _named(self) -> OrderedDict[str, Module]:
        """The submodules found so far, in order of discovery."""
        named: OrderedDict[str, Module] = self.__dict__.setdefault("_submodules", OrderedDict())
        return named

    def _find(self) -> None:
        """Register modules in lists, tuples and dicts of attributes, and parameters anywhere in attributes, in the
        order in which the attributes were first set; parameters made by calls come after them.

        Raises:
            ValueError: A parameter and a scope have the same name.
        """
        scope = self.parameter_scope
        held = dict(_held(self.__dict__))
        for name in [name for name in self._named if "." in name and name not in held]:
            self._remove(name)
        for name, (_, _, value) in held.items():
            if isinstance(value, Module):
                if self._named.get(name) is not value:
                    self._add(name, value)
            elif value.need_grad or scope.get(name) is value:
                if isinstance(scope.get(name), dict):
                    raise ValueError(f"{name}: names both a parameter of {type(self).__name__} and a scope; rename one")
                scope[name] = value
                value.name = value.name or name
        places = {name: i for i, name in enumerate(self._set)}
        known = dict.fromkeys([*self._named, *held])
        names = sorted(known, key=lambda name: places.get(name.partition(".")[0], -1))
        _put_first([name for name in names if name in self._named], self._named)
        keys = [f"@{name}" if name in self._named else name for name in names]
        _put_first([name for name in keys if name in scope], scope)

    @property
    def _set(self) -> dict[str, None]:
        """The names of attributes, in the order in which they were first set."""
        names: dict[str, None] = self.__dict__.setdefault("_attributes_set", {})
        return names

    @property
    def parent(self) -> Module | None:
        """The module that contains it as a submodule; the last one if there are several."""
        return self.__dict__.get("_parent")

    @property
    def name(self) -> str:
        """The name of the module in its parent; without a parent, the name of its class in lower case."""
        chosen: str | None = self.__dict__.get("_name")
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower() if chosen is None else chosen

    def is_root(self) -> bool:
        """True for a module without parent."""
        return self.parent is None

    def get_path_name(self) -> str:
        """The names of all modules from the outermost to this one, as in '@network/@first'."""
        names = []
        module: Module | None = self
        while module is not None:
            names.append(f"@{module.name}")
            module = module.parent
        return "/".join(reversed(names))

    @property
    def training(self) -> bool:
        """True in training mode, for use in `call`. Setting it also sets it for all submodules."""
        mode: bool = self.__dict__.get("training", True)
        return mode

    @training.setter
    def training(self, on: bool) -> None:
        self.__dict__["training"] = on

    def _remove(self, name: str) -> None:
        del self._named[name]
        self.parameter_scope.pop(f"@{name}", None)

    def _let_go(self, name: str, value: Any) -> None:
        """Unregister the parameter of an attribute that `value` replaces."""
        held = self.__dict__.get(name)
        if isinstance(held, Variable) and held is not value and self.parameter_scope.get(name) is held:
            del self.parameter_scope[name]

    def _add(self, name: str, module: Module) -> None:
        self._named[name] = module
        self.parameter_scope[f"@{name}"] = module.parameter_scope
        module.__dict__["_name"], module.__dict__["_parent"] = name, self

    def __setattr__(self, name: str, value: Any) -> None:
        self._set.setdefault(name)
        if isinstance(value, Module):
            self.__dict__.pop(name, None)
            self._add(name, value)
            return
        if name in self._named:
            self._remove(name)
        self._let_go(name, value)
        object.__setattr__(self, name, value)
        if isinstance(value, Variable):
            self._find()
        if name in self._recursive_attrs:
            for module in self.submodules.values():
                setattr(module, name, value)

    def __getattr__(self, name: str) -> Any:
        if name != "_submodules" and name in self._named:
            return self._named[name]
        message = f"{type(self).__name__} has no attribute and no submodule {name!r}"
        if name.startswith("_"):
            raise AttributeError(message)
        raise no_attribute(message, name, [*dir(type(self)), *vars(self), *self._named])

    def __delattr__(self, name: str) -> None:
        self._set.pop(name, None)
        if name in self._named:
            self._remove(name)
        else:
            self._let_go(name, None)
            object.__delattr__(self, name)

    def __len__(self) -> int:
        return len(self.submodules)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} module, {len(self.submodules)} submodules>"

    # ---------------------------------------------------------------- parameters

    @property
    def parameter_scope(self) -> Scope:
        """The scope of the module's parameters; it contains the scopes of its submodules."""
        scope: Scope = self.__dict__.setdefault("_parameter_scope", OrderedDict())
        return scope

    def get_parameters(self, recursive: bool = True, grad_only: bool = True) -> OrderedDict[str, Variable]:
        """The parameters by name, each once. Those made in `call` exist after its first run.

        Args:
            recursive: Whether to include parameters of submodules.
            grad_only: Whether to list only parameters with `need_grad`, which are trained; False lists all, including
                running statistics.
        """
        self._find_all()
        with parameter_scope("", self.parameter_scope):
            parameters = get_parameters(grad_only=grad_only)
        seen: set[int] = set()
        result: OrderedDict[str, Variable] = OrderedDict()
        for name, param in parameters.items():
            if id(param) not in seen and (recursive or not name.startswith("@")):
                seen.add(id(param))
                result[name] = param
        return result

    def _find_all(self) -> None:
        """`_find` in this module and its submodules."""
        waiting, seen = [self], {id(self)}
        while waiting:
            for module in waiting.pop().submodules.values():
                if id(module) not in seen:
                    seen.add(id(module))
                    waiting.append(module)

    def _hold(self, key: str, param: Variable) -> None:
        """Put a parameter into the attribute that holds the old parameter of its name."""
        module = self
        *path, name = key.split("/")
        for part in path:
            if not part.startswith("@"):
                return
            module = module._named[part[1:]]
        container, at, _ = dict(_held(module.__dict__)).get(name, (None, None, None))
        if isinstance(container, tuple):
            raise ValueError(f"{key!r}: cannot be replaced in a tuple; hold it in a list")
        if container is not None:
            container[at] = param

    def register_buffer(self, name: str, data: Any) -> None:
        """Hold a leaf that is saved and loaded with the parameters but not trained, as the attribute `name`. `F.assign`
        in `call` updates it.

        Args:
            name: The name of the attribute.
            data: Its initial value: an array, a number, or a list of numbers.
        """
        leaf = Variable.from_numpy_array(data)
        leaf.name = name
        setattr(self, name, leaf)
        self.parameter_scope[name] = leaf

    def set_parameter(self, key: str, param: Any, raise_if_missing: bool = False) -> None:
        """`set_parameters` for one parameter; the module may have others."""
        self._set_given({key: param}, raise_if_missing)

    def set_parameters(self, params: Mapping[str, Any], raise_if_missing: bool = False) -> None:
        """Set parameters by name. An array becomes the value of the parameter that is there, which graphs that use it
        see. A Variable replaces it: graphs that were built before keep the old one.

        Args:
            params: Arrays and Variables by name, as in `get_parameters(grad_only=False)`.
            raise_if_missing: Whether it is an error if a parameter of the module is missing in `params`, or one of
                `params` in the module. If not, those of missing submodules are ignored, and others are created.

        Raises:
            ValueError: A name is missing, an array has another shape than its parameter, or, with `raise_if_missing`, a
                Variable has; nothing is changed.
        """
        if raise_if_missing:
            self._check_complete(params, "params")
        self._set_given(params, raise_if_missing)

    def _set_given(self, params: Mapping[str, Any], raise_if_missing: bool) -> None:
        values = {key: p if isinstance(p, Variable) else np.asarray(p) for key, p in params.items()}
        present = self.get_parameters(grad_only=False)
        wanted = [key for key in values if self._has_place_of(key, raise_if_missing)]
        for key in wanted:
            if key in present and (raise_if_missing or not isinstance(values[key], Variable)):
                _check_shape(key, present[key].shape, values[key].shape, "params")
        for key in wanted:
            param = values[key]
            if key in present and not isinstance(param, Variable):
                present[key].d = param
                continue
            if not isinstance(param, Variable):
                param = Variable.from_numpy_array(param)
                param.need_grad = param.spec.differentiable
            self._hold(key, param)
            with parameter_scope("", self.parameter_scope):
                set_parameter(key, param)

    def save_parameters(self, path: str | Path, extension: str | None = None) -> None:
        """Write the parameters to a file; see `nn.save_parameters`."""
        save_parameters(path, self.get_parameters(grad_only=False), extension)

    def load_parameters(self, path: str | Path, extension: str | None = None, raise_if_missing: bool = True) -> None:
        """Read parameters from a file. Existing ones take over the values, which graphs that use them see; those of a
        module that was never called are created.

        Args:
            path: The file.
            extension: Its ending, as in `nn.load_parameters`.
            raise_if_missing: Whether names must agree, as in `set_parameters`.

        Raises:
            ValueError: A name is missing, or a parameter has another shape; nothing is changed.
        """
        with parameter_scope("", OrderedDict()):
            load_parameters(path, extension)
            loaded = get_parameters(grad_only=False)
        present = self.get_parameters(grad_only=False)
        wanted = {key: param for key, param in loaded.items() if self._has_place_of(key, raise_if_missing)}
        if raise_if_missing:
            self._check_complete(loaded, str(path))
        for key, param in wanted.items():
            if key in present:
                _check_shape(key, present[key].shape, param.shape, str(path))
        with parameter_scope("", self.parameter_scope):
            for key, param in wanted.items():
                if key in present:
                    present[key].data.copy_from(param.data)
                    present[key].need_grad = param.need_grad
                else:
                    set_parameter(key, param)

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        for param in self.get_parameters().values():
            param.grad.zero()

    def _check_complete(self, names: Iterable[str], source: str) -> None:
        """Raise a ValueError unless all parameters of the module are among `names`."""
        gone = [repr(key) for key in self.get_parameters(grad_only=False) if key not in names]
        if gone:
            raise ValueError(f"{source}: has no {', '.join(gone)}; to leave them as they are, pass "
                             "raise_if_missing=False")

    def _has_place_of(self, key: str, raise_if_missing: bool) -> bool:
        """True where the submodules in a parameter's name exist. With `raise_if_missing`, the parameter must exist too:
        a module that was never called may still make it."""
        module = self
        rest = key.split("/")
        while rest[0].startswith("@") and len(rest) > 1:
            name = rest.pop(0)[1:]
            inner = module.submodules.get(name)
            if inner is None:
                if raise_if_missing:
                    raise ValueError(f"{key!r}: {module.get_path_name()} has no submodule {name!r}; to skip such "
                                     "parameters, pass raise_if_missing=False")
                return False
            module = inner
        if raise_if_missing and "_called" in module.__dict__:
            present = module.get_parameters(recursive=False, grad_only=False)
            if "/".join(rest) not in present:
                hint = did_you_mean("/".join(rest), present) or f"; it has {', '.join(present) or 'none'}"
                raise ValueError(f"{key!r}: {module.get_path_name()} has no such parameter{hint}. To create it, pass "
                                 "raise_if_missing=False")
        return True

    def summary(self) -> str:
        """A table of its parameters: names, shapes, dtypes, sizes, and which are not trained."""
        parameters = self.get_parameters(grad_only=False)
        rows = [
            (name, str(list(p.shape)), p.dtype.name, f"{p.size:,}", "" if p.need_grad else "not trained")
            for name, p in parameters.items()
        ]
        trained = sum(p.size for p in parameters.values() if p.need_grad)
        rows.append((f"{len(parameters)} parameters", "", "", f"{sum(p.size for p in parameters.values()):,}",
                     f"{trained:,} trained"))
        return "\n".join([type(self).__name__, *aligned(rows, numbers=(3,))])


def _check_shape(key: str, shape: tuple[int, ...], new: tuple[int, ...], source: str) -> None:
    if shape != new:
        raise ValueError(f"{source}: {key!r} has shape {new}, but {shape} here")


def _put_first(names: list[str], within: OrderedDict[str, Any]) -> None:
    """Move these entries to the beginning, in this order."""
    if list(within)[: len(names)] != names:
        for name in reversed(names):
            within.move_to_end(name, last=False)


def named_parameters(parameters: Any) -> dict[str, Variable]:
    """Parameters by name: the trained ones of a Module, those in a list by index, those of a pytree by path.

    Raises:
        TypeError: A parameter is not a Variable.
        ValueError: A parameter is not a leaf, or there are none.
    """
    if isinstance(parameters, Variable):
        parameters = [parameters]
    if isinstance(parameters, Module):
        parameters = parameters.get_parameters()
    named = dict(parameters) if isinstance(parameters, Mapping) else {str(i): p for i, p in enumerate(parameters)}
    if any([isinstance(p, Mapping | list | tuple) for p in named.values()]):
        leaves, _ = jax.tree_util.tree_flatten_with_path(named)
        named = {jax.tree_util.keystr(path, simple=True, separator="/"): p for path, p in leaves}
    if not named:
        raise ValueError("parameters: must not be empty")
    for name, p in named.items():
        if not isinstance(p, Variable):
            raise TypeError(f"parameters: {name!r} must be a Variable, got {type(p).__name__}")
        if p.parent is not None:
            raise ValueError(f"parameters: {name!r} must be a leaf, got an output of {p.parent.op.name}")
    return named


def _held(attributes: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, Any, Any]]]:
    """The names of modules and leaves in a module's attributes (leaves also within lists, tuples and dicts), with the
    container and the index or key of each."""
    waiting: list[tuple[str, Any, Any, Any]] = [
        (name, attributes, name, value) for name, value in reversed(attributes.items()) if not name.startswith("_")
    ]
    seen: set[int] = set()
    while waiting:
        name, container, at, value = waiting.pop()
        if isinstance(value, Variable):
            if value.parent is None:
                yield name, (container, at, value)
        elif isinstance(value, Module):
            yield name, (container, at, value)
        elif isinstance(value, list | tuple | dict) and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += reversed([(f"{name}.{key}".replace("/", "."), value, key, v) for key, v in items])
