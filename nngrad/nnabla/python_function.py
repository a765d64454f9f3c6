"""PythonFunction: user-defined functions in nnabla's protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax

from backward_registry import Rule, registry

from ..extend import CustomFunction, Op, Spec, Switched, contained
from . import protocol
from .arguments import Argument


class PythonFunction(CustomFunction, is_protocol=True):
    """A function of your own in nnabla's protocol. An instance is called on Variables.

    `setup_impl` sets the shapes of the outputs, `forward_impl` reads the inputs' data and writes
    the outputs', `backward_impl` writes the inputs' grad. Methods that only call `F` and operators and `copy_from` are
    recorded: they are compiled, and gradients of any order follow. Methods that read values (`.d`, NumPy) are called
    from the compiled graph, on the host; the gradient of a `backward_impl` that does cannot be differentiated further.

    A forward is recorded in each call, with the instance's present attributes; a backward runs each time a gradient is
    asked for. Calls that compute the same share an executable.

    A class with `forward` and `backward` instead is a `CustomFunction`.
    """

    ctx: Any = None
    """nnabla's Context to run in; None for the one in force where the instance is called."""
    _in_nnablas_protocol: ClassVar[bool] = False
    _gradient_op: ClassVar[Op]

    def __init__(self, ctx: Any = None) -> None:
        if ctx is not None:
            self.ctx = ctx

    @classmethod
    def _declared(cls) -> tuple[Any, ...]:
        return super()._declared(), [getattr(cls, name) is not getattr(PythonFunction, name) for name in _METHODS]

    @classmethod
    def _made(cls) -> tuple[Op, Rule]:
        forward, backward, forward_impl, backward_impl = cls._made_for[1]
        cls._in_nnablas_protocol = cls._holds_anything = forward_impl
        if not forward_impl:
            return super()._made()
        if forward or backward:
            raise TypeError(f"{cls.__name__}: define forward and backward, or forward_impl and backward_impl, not both")
        op = cls._op_of(multiple_results=True)
        if not backward_impl:
            advice = f"{cls.__name__} has no `def backward_impl(self, inputs, outputs, propagate_down, accum)`"
            return op, cls._forward_only(op, advice)
        name = f"{cls.__name__}Gradient"
        cls._gradient_op = cls._op_of(multiple_results=True, forward=protocol.host_gradient, name=name)
        advice = (
            f"{cls.__name__}.backward_impl computes with values (.d, .g, NumPy); for gradients of any order, write it "
            "with F and operators on .data and .grad"
        )
        registry.add(cls._gradient_op, cls._forward_only(cls._gradient_op, advice))
        return op, Rule(protocol.all_gradients, "user", cls.exact, cls.__module__, protocol.rule_of_protocol)

    # ---------------------------------------------------------------- what a subclass writes

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
        """True if the gradient at input `i` depends on the data of input `j`."""
        return True

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """True if the gradient at input `i` depends on the data of output `o`."""
        return True

    # ---------------------------------------------------------------- how it is run

    def __call__(self, *inputs: Any, n_outputs: int = -1, outputs: Sequence[Any] | None = None) -> Any:
        """Apply the function to Variables, arrays or numbers.

        Args:
            inputs: The arguments.
            n_outputs: Accepted for nnabla's sake; `min_outputs` gives the number.
            outputs: Not supported: a function of nngrad makes its outputs.
        """
        if outputs is not None:
            raise TypeError(f"{type(self).__name__}: outputs cannot be passed; the function makes its own")
        if self.ctx is None or not self._in_nnablas_protocol:
            return super().__call__(*inputs)
        return _called_within(self.ctx, super().__call__, inputs)

    def _find(self, inputs: tuple[Spec, ...]) -> Any:
        return protocol.found(self, inputs) if self._in_nnablas_protocol else super()._find(inputs)

    def _run_elsewhere(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        if not self._in_nnablas_protocol:
            return super()._run_elsewhere(arrays)
        return self._run_for_shapes_of(arrays)

    def _on_host(self, arrays: Sequence[Any], outputs: Sequence[jax.ShapeDtypeStruct]) -> tuple[Any, ...]:
        if not self._in_nnablas_protocol:
            return super()._on_host(arrays, outputs)
        return protocol.forward_on_host(self, self._inputs, arrays, outputs)


_METHODS = ("forward", "backward", "forward_impl", "backward_impl")


@contained
def _called_within(context: Any, call: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """The result of `call`, in the Context `context`."""
    Switched(context=context).from_now_on()
    return call(*inputs)
