"""`Parameter`, and Modules that contain others: `Sequential`, `ModuleList`, `ModuleDict`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..extend import Variable
from .modules import Module


def Parameter(data: Any, need_grad: bool = True, dtype: Any = None) -> Variable:  # noqa: N802
    """A trainable leaf, which becomes a parameter of a Module when assigned to one of its attributes.

    Args:
        data: Its initial value: an array, a number, or a list of numbers.
        need_grad: Whether it is trained. A Module registers only trained leaves; one that is frozen later stays.
        dtype: Its dtype; by default that of the array, or float32 for Python numbers.
    """
    return Variable.from_numpy_array(data, need_grad=need_grad, dtype=dtype)


class Sequential(Module):
    """A chain of Modules and functions: each is applied to the result of the previous one; a tuple becomes several
    arguments.

    Args:
        args: Modules, functions of Variables such as `F.relu`, or pairs of a name and one of these. The default name of
            the i-th Module is that of its class and i.

    Raises:
        TypeError: An argument is anything else.
    """

    def __init__(self, *args: Module | Callable[..., Any] | tuple[str, Module | Callable[..., Any]]) -> None:
        self._steps: list[str | Callable[..., Any]] = []
        for i, argument in enumerate(args):
            name, step = argument if isinstance(argument, tuple) and len(argument) == 2 else ("", argument)
            if isinstance(step, type) or not callable(step) or not isinstance(name, str):
                hint = f"; pass an instance: {step.__name__}(...)" if isinstance(step, type) else ""
                raise TypeError(
                    f"args[{i}]: expected a Module, a function, or a pair (name, module), got {argument!r}{hint}"
                )
            if isinstance(step, Module):
                name = name or f"{step.name}_{i}"
                self._add(name, step)
                self._steps.append(name)
            else:
                self._steps.append(step)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the chain, and return the last result. Each Module is called with `kwargs`."""
        result: Any = args if len(args) != 1 else args[0]
        for step in self:
            arguments = result if isinstance(result, tuple) else (result,)
            result = step(*arguments, **kwargs) if isinstance(step, Module) else step(*arguments)
        return result

    def __iter__(self) -> Iterator[Any]:
        """The Modules and functions, in their order."""
        for step in self._steps:
            yield self._named[step] if isinstance(step, str) else step

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]


class ModuleList(Module):
    """A list of Modules, named after their indices.

    Args:
        modules: The Modules.

    Raises:
        TypeError: An element is not a Module.
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Add a Module at the end.

        Raises:
            TypeError: `module` is not a Module.
        """
        name = str(len(self._named))
        self._add(name, _checked(module, f"modules[{name}]"))
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add Modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def __iter__(self) -> Iterator[Module]:
        return iter(self._named.values())

    def __getitem__(self, index: int) -> Module:
        return list(self)[index]

    def __setitem__(self, index: int, module: Module) -> None:
        name = list(self._named)[index]
        self._add(name, _checked(module, f"modules[{index}]"))


class ModuleDict(Module):
    """A dict of Modules, named after their keys.

    Args:
        modules: The Modules by name.

    Raises:
        TypeError: A value is not a Module, or a key is not a string.
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name: expected a str, got {name!r}")
        self._add(name, _checked(module, f"modules[{name!r}]"))

    def __getitem__(self, name: str) -> Module:
        return self.submodules[name]

    def __delitem__(self, name: str) -> None:
        self._remove(name)

    def __contains__(self, name: object) -> bool:
        return name in self.submodules

    def __iter__(self) -> Iterator[str]:
        return iter(self.submodules)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self.submodules.keys()

    def values(self) -> Iterable[Module]:
        """The Modules."""
        return self.submodules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and Modules."""
        return self.submodules.items()


def _checked(module: Any, name: str) -> Module:
    if not isinstance(module, Module):
        raise TypeError(f"{name}: expected a Module, got {module!r}")
    return module
