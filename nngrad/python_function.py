"""PythonFunction: functions of the user's own, with a forward on arrays and a backward rule on Variables."""

from __future__ import annotations

from typing import Any, ClassVar

from backward_registry import Rule, registry

from .graph import Function, Op, Variable, apply, as_variable
from .graph.arguments import Static


class PythonFunction:
    """Base of functions of your own.

    A subclass writes `forward` on JAX arrays and, to be differentiable, `backward` on Variables; an
    instance is called on Variables:

        class Cube(nn.PythonFunction):
            def forward(self, x):
                return x ** 3

            def backward(self, f, gy):
                (x,) = f.inputs
                return gy * 3 * x ** 2

        y = Cube()(x)

    `backward` is a rule as in `backward_registry`: it gets the Function (`f.inputs`, `f.outputs`) and
    the gradient of each output, and returns one gradient per input, None for zero. It calls `F` and
    operators, so gradients of any order follow.

    What an instance holds as attributes are its static arguments: two instances of a class with equal
    attributes are the same function, and share an executable. Attributes must be hashable and must not
    change once the instance was called.
    """

    outputs: ClassVar[int] = 1
    """How many outputs `forward` returns; more than one as a tuple."""
    exact: ClassVar[bool] = True
    """Whether `backward` is the true derivative; False for straight-through estimators and the like."""
    _op: ClassVar[Op]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

        def forward(*x: Any, instance: Static) -> Any:
            return instance._checked_forward(x)  # type: ignore[attr-defined]

        forward.__name__ = cls.__name__
        forward.__doc__ = cls.__doc__
        forward.__module__ = cls.__module__
        forward.__annotations__ = {"instance": Static}
        cls._op = Op(forward, type_name=cls.__name__, several=cls.outputs > 1)
        if cls.backward is not PythonFunction.backward:

            def rule(f: Function, *gys: Variable) -> Any:
                return f.args["instance"].backward(f, *gys)

            registry.add(cls._op, Rule(rule, "user", cls.exact, cls.__module__))

    def forward(self, *arrays: Any) -> Any:
        """The function on JAX arrays."""
        raise NotImplementedError(f"{type(self).__name__} has no forward; write `def forward(self, *arrays)`")

    def backward(self, f: Function, *gys: Variable) -> Any:
        """The backward rule on Variables."""
        raise NotImplementedError(f"{type(self).__name__} has no backward; write `def backward(self, f, *gys)`")

    def __call__(self, *inputs: Any) -> Any:
        """Apply the function to Variables, arrays or numbers."""
        if type(self) is PythonFunction:
            raise TypeError("PythonFunction is a base; call an instance of a subclass of it")
        named = tuple([as_variable(x, f"inputs[{i}]", type(self).__name__) for i, x in enumerate(inputs)])
        return apply(self._op, named, (self,))

    def _checked_forward(self, arrays: tuple[Any, ...]) -> Any:
        out = self.forward(*arrays)
        count = len(out) if isinstance(out, tuple) else 1
        if count != self.outputs or isinstance(out, tuple) != (self.outputs > 1):
            raise ValueError(
                f"forward returned {'a tuple of ' if isinstance(out, tuple) else ''}{count} "
                f"where the class says `outputs = {self.outputs}`"
            )
        return out

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._state() == other._state()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        try:
            return hash((type(self), self._state()))
        except TypeError as error:
            raise TypeError(f"{self!r}: attributes must be hashable, a tuple in place of a list ({error})") from error

    def _state(self) -> frozenset[tuple[str, type, Any]]:
        # The types are in it because 1, 1.0 and True are equal but make different functions.
        return frozenset((name, type(value), value) for name, value in vars(self).items())

    def __repr__(self) -> str:
        attributes = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({attributes})"
