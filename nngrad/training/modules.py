"""Module and Sequential: parts of a model that keep their parameters themselves."""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from inspect import isfunction
from pathlib import Path
from typing import Any

from ..files.parameter_files import load_parameters, save_parameters
from ..graph import Variable
from ..parameter import Scope, get_parameter, get_parameters, parameter_scope, set_parameter

_NOT_IN_SCOPE = re.compile(r"__(?!init__$|call__$)\w+__$")
"""Special methods that do not run in the module's scope."""


def _in_scope(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, run in the scope of its module."""

    @functools.wraps(method)
    def run(self: Module, *args: Any, **kwargs: Any) -> Any:
        with parameter_scope("", self.parameter_scope):
            return method(self, *args, **kwargs)

    return run


class Module:
    """A part of a model with parameters of its own, which may be made of other Modules.

    A subclass says in `call` what it computes. All its methods run in the module's own scope of parameters, so
    parametric functions in them make the module's parameters, and no others see them. A Module that is assigned to an
    attribute is a submodule; its parameters are the module's too, under `@` and the name of the attribute:

        class Block(nn.Module):
            def __init__(self, width):
                self.width = width

            def call(self, x):
                return F.relu(PF.affine(x, self.width))

        class Network(nn.Module):
            def __init__(self):
                self.first, self.second = Block(8), Block(8)

            def call(self, x):
                return PF.affine(self.second(self.first(x)), 1)

        network = Network()
        y = network(x)
        network.get_parameters()        # @first/affine/W, @first/affine/b, @second/affine/W, ..., affine/W, affine/b

    Modules in lists or dicts are no submodules: give each an attribute (`setattr`), or use `nn.Sequential`.
    """

    _recursive_attrs = ("training",)
    """Attributes that submodules get as well when they are set."""

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if isfunction(method) and not _NOT_IN_SCOPE.match(name):
                setattr(cls, name, _in_scope(method))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What `call` gives."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. A subclass writes it."""
        raise NotImplementedError(f"{type(self).__name__} has no method `call`, which says what it computes")

    # ---------------------------------------------------------------- the tree of modules

    @property
    def submodules(self) -> OrderedDict[str, Module]:
        """The modules that it is made of, by their names."""
        found: OrderedDict[str, Module] = self.__dict__.setdefault("_submodules", OrderedDict())
        return found

    @property
    def parent(self) -> Module | None:
        """The module that it was made a part of, the last one if there are several."""
        return self.__dict__.get("_parent")

    @property
    def name(self) -> str:
        """Its name in its parent; without one, that of its class, in lower case."""
        own: str | None = self.__dict__.get("_name")
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower() if own is None else own

    def is_root(self) -> bool:
        """Whether it is no part of another one."""
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
        """Whether the module is being trained, for `call` to ask. Setting it sets it for all submodules."""
        found: bool = self.__dict__.get("training", True)
        return found

    @training.setter
    def training(self, on: bool) -> None:
        self.__dict__["training"] = on

    def _add(self, name: str, module: Module) -> None:
        self.submodules[name] = module
        self.parameter_scope[f"@{name}"] = module.parameter_scope
        module.__dict__["_name"], module.__dict__["_parent"] = name, self

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module):
            self.__dict__.pop(name, None)
            self._add(name, value)
            return
        if name in self.submodules:
            delattr(self, name)
        object.__setattr__(self, name, value)
        if name in self._recursive_attrs:
            for module in self.submodules.values():
                setattr(module, name, value)

    def __getattr__(self, name: str) -> Any:
        if name != "_submodules" and name in self.submodules:
            return self.submodules[name]
        raise AttributeError(f"{type(self).__name__} has no attribute and no submodule {name!r}")

    def __delattr__(self, name: str) -> None:
        if name in self.submodules:
            del self.submodules[name]
            self.parameter_scope.pop(f"@{name}", None)
        else:
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
        """The scope that its parameters are in; those of its submodules are scopes within."""
        scope: Scope = self.__dict__.setdefault("_parameter_scope", OrderedDict())
        return scope

    def get_parameters(self, recursive: bool = True, grad_only: bool = False) -> OrderedDict[str, Variable]:
        """The parameters by name, each once, as far as `call` has made them: at its first call it makes them all.

        Args:
            recursive: Those of submodules too.
            grad_only: Leave out those whose `need_grad` is False.
        """
        with parameter_scope("", self.parameter_scope):
            found = get_parameters(grad_only=grad_only)
        seen: set[int] = set()
        result: OrderedDict[str, Variable] = OrderedDict()
        for name, param in found.items():
            if id(param) not in seen and (recursive or not name.startswith("@")):
                seen.add(id(param))
                result[name] = param
        return result

    def set_parameter(self, key: str, param: Variable, raise_if_missing: bool = False) -> None:
        """Put a parameter in the place of another one. Graphs that were built before keep the one that they have.

        Args:
            key: Its name, as `get_parameters` gives it.
            param: The parameter.
            raise_if_missing: Whether a submodule that is not there is an error; else the parameter is left out.

        Raises:
            ValueError: There is no such submodule.
        """
        if self._has_modules_of(key, raise_if_missing):
            with parameter_scope("", self.parameter_scope):
                set_parameter(key, param)

    def set_parameters(self, params: Mapping[str, Variable], raise_if_missing: bool = False) -> None:
        """`set_parameter` for each of some parameters by name."""
        for key, param in params.items():
            self.set_parameter(key, param, raise_if_missing)

    def save_parameters(self, path: str | Path, extension: str | None = None) -> None:
        """Write the parameters to a file; see `nn.save_parameters`."""
        save_parameters(path, self.get_parameters(), extension)

    def load_parameters(self, path: str | Path, extension: str | None = None, raise_if_missing: bool = True) -> None:
        """Read parameters from a file. Those that are there take over the values, so graphs that use them do; others
        are made.

        Args:
            path: The file.
            extension: As for `nn.load_parameters`.
            raise_if_missing: Whether a submodule that is not there is an error; else its parameters are left out.

        Raises:
            ValueError: There is no such submodule, or a parameter has another shape; nothing is changed then.
        """
        with parameter_scope("", OrderedDict()):
            load_parameters(path, extension)
            found = get_parameters(grad_only=False)
        wanted = {key: param for key, param in found.items() if self._has_modules_of(key, raise_if_missing)}
        with parameter_scope("", self.parameter_scope):
            own = {key: get_parameter(key) for key in wanted}
            for key, param in wanted.items():
                there = own[key]
                if there is not None and there.shape != param.shape:
                    raise ValueError(f"{path}: {key!r} has shape {param.shape}, but here it has {there.shape}")
            for key, param in wanted.items():
                there = own[key]
                if there is None:
                    set_parameter(key, param)
                else:
                    there.data.copy_from(param.data)
                    there.need_grad = param.need_grad

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        for param in self.get_parameters().values():
            param.grad.zero()

    def _has_modules_of(self, key: str, raise_if_missing: bool) -> bool:
        """Whether the submodules are there that a parameter's name speaks of."""
        module = self
        for part in key.split("/")[:-1]:
            if part.startswith("@"):
                inner = module.submodules.get(part[1:])
                if inner is None:
                    if raise_if_missing:
                        raise ValueError(
                            f"{key!r}: {module.get_path_name()} has no submodule {part[1:]!r}; with "
                            "raise_if_missing=False such parameters are left out"
                        )
                    return False
                module = inner
        return True


class Sequential(Module):
    """Modules one after another: each gets what the one before gives; a tuple is given on as several arguments.

    Args:
        args: Modules, or pairs of a name and a Module. The name of the i-th is that of its class and i otherwise.

    Raises:
        TypeError: Something else is given.
    """

    def __init__(self, *args: Module | tuple[str, Module]) -> None:
        for i, given in enumerate(args):
            name, module = given if isinstance(given, tuple) and len(given) == 2 else ("", given)
            if not isinstance(module, Module) or not isinstance(name, str):
                raise TypeError(f"args[{i}]: expected a Module, or a name and a Module, got {given!r}")
            self._add(name or f"{module.name}_{i}", module)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What the last module gives. Each is called with `kwargs`."""
        result: Any = args if len(args) != 1 else args[0]
        for module in self:
            result = module(*result, **kwargs) if isinstance(result, tuple) else module(result, **kwargs)
        return result

    def __iter__(self) -> Iterator[Module]:
        return iter(self.submodules.values())
