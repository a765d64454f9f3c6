"""PythonFunction: user-defined functions, with a backward rule on Variables or in nnabla's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from backward_registry import Rule, registry

from ...graph import Function, Op, Variable, apply, build_options, contained, set_switches, spec_of
from . import nnabla_protocol
from .base import Arrays, CustomFunction, declared_rows, forward_only, inputs_as_variables, op_of
from .host import Argument, Specs


class PythonFunction(CustomFunction):
    """A function of your own, written in one of two ways. An instance is called on Variables.

    As a rule: `forward` on arrays and, to be differentiable, `backward` on Variables:

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

    In nnabla's protocol: `setup_impl` sets the shapes of the outputs, `forward_impl` reads the inputs' data and writes
    the outputs', `backward_impl` writes the inputs' grad. Methods that only call `F` and operators and `copy_from` are
    recorded: they are compiled, and gradients of any order follow. Methods that read values (`.d`, NumPy) are called
    from the compiled graph, on the host; the gradient of a `backward_impl` that does cannot be differentiated further.

    A forward is traced, or recorded, in each call, with the instance's present attributes; a backward runs each
    time a gradient is asked for. Calls that compute the same share an executable. Attributes must be hashable, except
    in nnabla's protocol.

    Set `numpy = True` in a class whose `forward` is written for NumPy arrays; the compiled graph then calls it
    through `jax.pure_callback`. Its output shapes come from `infer`.

    `rows = (0, 1)` in a class declares that row b of the outputs depends only on row b of these inputs (`nn.vmap`).
    """

    outputs: ClassVar[int] = 1
    """The number of outputs of `forward`; several are returned as a tuple."""
    ctx: Any = None
    """nnabla's Context to run in; None for the one in force where the instance is called."""
    _in_nnablas_protocol: ClassVar[bool] = False
    _gradient_op: ClassVar[Op]

    def __init__(self, ctx: Any = None) -> None:
        if ctx is not None:
            self.ctx = ctx

    @classmethod
    def _declared(cls) -> tuple[Any, ...]:
        own = [getattr(cls, name) is not getattr(PythonFunction, name) for name in _METHODS]
        return *own, cls.exact, cls.rows, cls.outputs

    @classmethod
    def _made(cls) -> tuple[Op, Rule]:
        forward, backward, forward_impl, backward_impl = cls._made_for[: len(_METHODS)]
        cls._in_nnablas_protocol = cls._holds_anything = forward_impl
        axes, outputs = declared_rows(cls), cls.outputs
        if not forward_impl:
            op = op_of(cls, multiple_results=outputs > 1, axes=axes)
            if not backward:
                return op, forward_only(op, f"{cls.__name__} has no `def backward(self, f, *gys)`")
            return op, Rule(_rule, "user", cls.exact, cls.__module__)
        if forward or backward:
            raise TypeError(f"{cls.__name__}: define forward and backward, or forward_impl and backward_impl, not both")
        op = op_of(cls, multiple_results=True, axes=axes)
        if not backward_impl:
            advice = f"{cls.__name__} has no `def backward_impl(self, inputs, outputs, propagate_down, accum)`"
            return op, forward_only(op, advice)
        name = f"{cls.__name__}Gradient"
        cls._gradient_op = op_of(cls, multiple_results=True, forward=nnabla_protocol.host_gradient, name=name)
        advice = (
            f"{cls.__name__}.backward_impl computes with values (.d, .g, NumPy); for gradients of any order, write it "
            "with F and operators on .data and .grad"
        )
        registry.add(cls._gradient_op, forward_only(cls._gradient_op, advice))
        rule = Rule(nnabla_protocol.all_gradients, "user", cls.exact, cls.__module__, nnabla_protocol.rule_of_protocol)
        return op, rule

    # ---------------------------------------------------------------- written as a rule

    def forward(self, *arrays: Any) -> Any:
        """The function on JAX arrays (NumPy arrays where `numpy = True`)."""
        raise NotImplementedError(f"{type(self).__name__} has no forward; write `def forward(self, *arrays)`")

    def backward(self, f: Function, *gys: Variable) -> Any:
        """The backward rule on Variables."""
        raise NotImplementedError(f"{type(self).__name__} has no backward; write `def backward(self, f, *gys)`")

    # ---------------------------------------------------------------- written in nnabla's protocol

    def min_outputs(self) -> int:
        """The number of outputs."""
        return 1

    def setup_impl(self, inputs: list[Argument], outputs: list[Argument]) -> None:
        """Set the shape of each output: `outputs[0].reset_shape(inputs[0].shape, True)`."""
        raise NotImplementedError(
            f"{type(self).__name__} has no setup_impl; write `def setup_impl(self, inputs, outputs)`"
        )

    def forward_impl(self, inputs: list[Argument], outputs: list[Argument]) -> None:
        """Write the data of each output: `outputs[0].data.copy_from(F.exp(inputs[0].data))`, or `outputs[0].d = ...`.

        Outputs have the dtype that the floating inputs promote to.
        """

    def backward_impl(
        self, inputs: list[Argument], outputs: list[Argument], propagate_down: list[bool], accum: list[bool]
    ) -> None:
        """Write the grad of each input for which `propagate_down` is true; `accum` is always false, since sums are
        taken elsewhere. A grad that is not written is zero."""

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """Whether the gradient at input `i` depends on the data of input `j`."""
        return True

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """Whether the gradient at input `i` depends on the data of output `o`."""
        return True

    # ---------------------------------------------------------------- how it is run

    def __call__(self, *inputs: Any, n_outputs: int = -1, outputs: Sequence[Any] | None = None) -> Any:
        """Apply the function to Variables, arrays or numbers.

        Args:
            inputs: The arguments.
            n_outputs: Accepted for nnabla's sake; `min_outputs` gives the number.
            outputs: Not supported: a function of nngrad makes its outputs.
        """
        if type(self) is PythonFunction:
            raise TypeError("PythonFunction is a base class; call an instance of a subclass")
        if outputs is not None:
            raise TypeError(f"{type(self).__name__}: outputs cannot be passed; the function makes its own")
        variables = inputs_as_variables(inputs, type(self).__name__)
        op = self._op_of_now()
        twin = self._applied_to(tuple([x.spec for x in variables]))
        if not self._in_nnablas_protocol:
            result = apply(op, variables, (twin,))
            self._check_rows(variables, result if self.outputs > 1 else (result,))
            return result
        made = _applied(op, variables, twin, self._context())
        self._check_rows(variables, made)
        return made[0] if len(made) == 1 else made

    def _context(self) -> Any:
        return build_options().applying.context if self.ctx is None else self.ctx

    def _forward(self, *arrays: Any) -> tuple[Any, ...]:
        given = self.forward(*arrays)
        several = isinstance(given, tuple | list)
        out = self._returned(given)
        if len(out) != self.outputs or several != (self.outputs > 1):
            raise ValueError(
                f"forward returned {'a tuple of ' if several else ''}{len(out)}, "
                f"but the class declares `outputs = {self.outputs}`"
            )
        return out

    def _find(self, inputs: Specs) -> Any:
        return nnabla_protocol.found(self, inputs) if self._in_nnablas_protocol else super()._find(inputs)

    def _run_elsewhere(self, arrays: Arrays) -> tuple[Any, ...]:
        if not self._in_nnablas_protocol:
            return super()._run_elsewhere(arrays)
        return self._applied_to(tuple([spec_of(tuple(a.shape), np.dtype(a.dtype)) for a in arrays]))._run(arrays)

    def _on_host(self, arrays: Arrays, outputs: Sequence[jax.ShapeDtypeStruct]) -> tuple[Any, ...]:
        if not self._in_nnablas_protocol:
            return super()._on_host(arrays, outputs)
        return nnabla_protocol.forward_on_host(self, arrays, outputs)


_METHODS = ("forward", "backward", "forward_impl", "backward_impl")

@contained
def _applied(op: Op, inputs: tuple[Variable, ...], instance: PythonFunction, context: Any) -> Any:
    """`op` applied in the Context `context`."""
    set_switches(context=context)
    return apply(op, inputs, (instance,))


def _rule(f: Function, *gys: Variable) -> Any:
    return f.args["instance"].backward(f, *gys)
