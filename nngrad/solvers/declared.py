"""Solvers declared as dataclasses, whose fields say what each argument must be."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, dataclass_transform

from ..functions.docstrings import completed_docstring
from .rates import Rate, as_decay, as_rate
from .solver import Solver


def amount(*, default: float) -> Any:
    """A field for a finite argument that is not negative."""
    return field(default=default, metadata={"checked": as_rate})


def share(*, default: float) -> Any:
    """A field for a decay rate: the share of an average that is kept at each step, at least 0 and below 1."""
    return field(default=default, metadata={"checked": as_decay})


@dataclass_transform(eq_default=False, field_specifiers=(field, amount, share))
class Declared(Solver):
    """A solver whose fields are its arguments, in order. The first is the learning rate; if it has another name, `lr`
    is an alias for it."""

    def __init_subclass__(cls, names: Mapping[str, str] | None = None, elementwise: bool = False) -> None:
        declared = [name for name in inspect.get_annotations(cls) if name in vars(cls)]
        if declared and "__init__" not in vars(cls):
            dataclass(eq=False, repr=False, match_args=False)(cls)
            cls.rate_name = next(iter(cls.__dataclass_fields__))  # type: ignore[attr-defined]
            types = cls.__init__.__annotations__
            types.update({n: t[len("InitVar[") : -1] for n, t in types.items() if str(t).startswith("InitVar[")})
            for name in declared:
                delattr(cls, name)  # a default, which must not be a class attribute
        if cls.__module__.startswith("nngrad."):
            arguments = inspect.signature(cls).parameters
            cls.__doc__ = completed_docstring(cls, arguments, {"lr": "Learning rate."}, {})
        super().__init_subclass__(names, elementwise)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dataclass_fields__ and "_update" in vars(self):  # type: ignore[attr-defined]
            raise AttributeError(f"{name}: cannot be set, since updates are compiled with it; call set_learning_rate, "
                                 "or make another solver and pass it the states of this one")
        super().__setattr__(name, value)

    def __post_init__(self, rate: Rate, lr: Rate | None = None) -> None:
        if lr is not None and rate is not self.__dataclass_fields__[self.rate_name].default:  # type: ignore[attr-defined]
            raise TypeError(f"lr: is another name for {self.rate_name}; give only one of the two")
        super().__init__(rate if lr is None else lr)
        for argument in fields(self):  # type: ignore[arg-type]
            if "checked" in argument.metadata:
                vars(self)[argument.name] = argument.metadata["checked"](getattr(self, argument.name), argument.name)
