"""PythonFunction: functions of the user's own, with a backward rule on Variables or in nnabla's protocol."""

from __future__ import annotations

from typing import Any, ClassVar

from backward_registry import Rule, registry

from ..graph import Function, Variable, apply
from .base import CustomFunction, op_of, register_forward_only, variables_of


class PythonFunction(CustomFunction):
    """A function of your own. A subclass writes `forward` on arrays and, to be differentiable, a backward rule on
    Variables; an instance is called on Variables:

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
    attributes are the same function, and share an executable. Attributes must be hashable.

    Set `numpy = True` in a class whose `forward` is written on NumPy arrays; it is then called from the compiled
    graph through `jax.pure_callback`. Its output shapes come from `infer`.
    """

    outputs: ClassVar[int] = 1
    """How many outputs `forward` returns; more than one as a tuple."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._op = op_of(cls, cls._run, several=cls.outputs > 1)
        if cls.backward is not PythonFunction.backward:
            registry.add(cls._op, Rule(_rule, "user", cls.exact, cls.__module__))
        else:
            register_forward_only(cls._op, f"{cls.__name__} has no `def backward(self, f, *gys)`")

    def forward(self, *arrays: Any) -> Any:
        """The function on JAX arrays (NumPy arrays where `numpy = True`)."""
        raise NotImplementedError(f"{type(self).__name__} has no forward; write `def forward(self, *arrays)`")

    def backward(self, f: Function, *gys: Variable) -> Any:
        """The backward rule on Variables."""
        raise NotImplementedError(f"{type(self).__name__} has no backward; write `def backward(self, f, *gys)`")

    def __call__(self, *inputs: Any) -> Any:
        """Apply the function to Variables, arrays or numbers."""
        if type(self) is PythonFunction:
            raise TypeError("PythonFunction is a base; call an instance of a subclass of it")
        return apply(self._op, variables_of(inputs, type(self).__name__), (self._copy(),))

    def _forward(self, *arrays: Any) -> Any:
        out = self.forward(*arrays)
        count = len(out) if isinstance(out, tuple) else 1
        if count != self.outputs or isinstance(out, tuple) != (self.outputs > 1):
            raise ValueError(
                f"forward returned {'a tuple of ' if isinstance(out, tuple) else ''}{count} "
                f"where the class says `outputs = {self.outputs}`"
            )
        return out


def _rule(f: Function, *gys: Variable) -> Any:
    return f.args["instance"].backward(f, *gys)
