"""FunctionNode: user-defined functions in Chainer's protocol."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from backward_registry import Rule

from ..extend import CustomFunction, Function, Op, Variable
from ..functions.host_call import shapes_by_running
from .protocol import attributes_set

Indexes = tuple[int, ...]


class Retained(NamedTuple):
    """The indices that `forward` asked to retain for `backward`."""

    inputs: Indexes | None = None
    """None for all."""
    outputs: Indexes = ()


class RunningNode:
    """The state of a FunctionNode while one of its methods runs."""

    __slots__ = ("function", "retained")

    def __init__(self, function: Function | None = None) -> None:
        self.function = function
        """The Function, in `backward`."""
        self.retained = Retained()
        """What `forward` asks to retain."""


class FunctionNode(CustomFunction, is_protocol=True):
    """A function of your own in Chainer's protocol: `forward` on arrays, `backward` on Variables.

        class Mul(nn.FunctionNode):
            def forward(self, a, b):
                self.retain_inputs((0, 1))
                return a * b

            def backward(self, indexes, grad_outputs):
                a, b = self.get_retained_inputs()
                (gy,) = grad_outputs
                return tuple([gy * (b if i == 0 else a) for i in indexes])

        y = Mul()(a, b)                # or, as in Chainer:  (y,) = Mul().apply((a, b))

    `backward` calls `F` and operators, so gradients of any order follow, and runs each time a gradient is asked for.
    Besides retained inputs and outputs it can read attributes, which must be set in `__init__` and be
    hashable: `forward` is traced, once in each call, so it cannot leave anything behind on `self` (an attempt
    raises an error).

    Set `numpy = True` in a class whose `forward` is written for NumPy arrays; the compiled graph then calls it
    through `jax.pure_callback`. Its output shapes come from `infer`.

    `rows = (0, 1)` in a class declares that row b of the outputs depends only on row b of these inputs (`nn.vmap`).
    """

    __slots__ = ("_application", "_kept")

    _application: RunningNode
    _kept: Retained
    """The indices that `forward` retained when it was applied."""

    @classmethod
    def _declared(cls) -> tuple[Any, ...]:
        return cls.exact, cls.rows, cls._can_go_back()

    @classmethod
    def _can_go_back(cls) -> bool:
        base = FunctionNode
        return cls.backward is not base.backward or cls.backward_accumulate is not base.backward_accumulate

    @classmethod
    def _made(cls) -> tuple[Op, Rule]:
        op = cls._op_of(multiple_results=True)
        if not cls._can_go_back():
            return op, cls._forward_only(op, f"{cls.__name__} has no `def backward(self, indexes, grad_outputs)`")
        return op, Rule(_all_gradients, "user", cls.exact, cls.__module__, _gradients)

    # ---------------------------------------------------------------- what a subclass writes

    def backward(self, indexes: Indexes, grad_outputs: tuple[Variable, ...]) -> Any:  # type: ignore[override]
        """The gradients at the inputs.

        Args:
            indexes: The inputs whose gradients are requested, in ascending order.
            grad_outputs: The gradient of each output; zeros if none arrived.

        Returns:
            One Variable for each of `indexes`, as a tuple; None for zero. One for each input is also accepted.
        """
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    def backward_accumulate(
        self, indexes: Indexes, grad_outputs: tuple[Variable, ...], grad_inputs: tuple[Variable | None, ...]
    ) -> Any:
        """The gradients at the inputs, added to those that have already arrived there.

        Override it if computing and adding can be one operation. By default `backward` is called, and gradients are
        summed at the end, when all terms are known.

        Args:
            indexes: The inputs whose gradients are requested, in ascending order.
            grad_outputs: The gradient of each output.
            grad_inputs: For each of `indexes`, the gradient that has arrived so far, or None. If an input occurs twice,
                the first occurrence gets it.

        Returns:
            One Variable for each of `indexes`; None if there is nothing to add.
        """
        gxs = _listed(self, "backward", self.backward(indexes, grad_outputs), indexes)
        return tuple([g if gx is None else gx if g is None else gx + g for gx, g in zip(gxs, grad_inputs, strict=True)])

    # ---------------------------------------------------------------- what it may call

    def retain_inputs(self, indexes: Iterable[int]) -> None:
        """In `forward`: choose the inputs that `get_retained_inputs` returns in `backward`; all by default."""
        self._known().retained = self._known().retained._replace(inputs=_checked(indexes, "retain_inputs"))

    def retain_outputs(self, indexes: Iterable[int]) -> None:
        """In `forward`: choose the outputs that `get_retained_outputs` returns in `backward`; none by default."""
        self._known().retained = self._known().retained._replace(outputs=_checked(indexes, "retain_outputs"))

    def get_retained_inputs(self) -> tuple[Variable, ...]:
        """In `backward`: the inputs that were retained."""
        indexes = self._retained().inputs
        return self.inputs if indexes is None else tuple([self.inputs[i] for i in indexes])

    def get_retained_outputs(self) -> tuple[Variable, ...]:
        """In `backward`: the outputs that were retained."""
        indexes = self._retained().outputs
        if not indexes:
            raise RuntimeError(
                f"{type(self).__name__}: no output was retained; call self.retain_outputs((0,)) in forward"
            )
        return tuple([self.outputs[i] for i in indexes])

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """In `backward`: the Variables that the function was applied to."""
        return self._function().inputs

    @property
    def outputs(self) -> tuple[Variable, ...]:  # type: ignore[override]
        """In `backward`: the output Variables."""
        return self._function().outputs

    def apply(self, inputs: Sequence[Any]) -> tuple[Variable, ...]:
        """Apply the function to a sequence of Variables, arrays or numbers; returns a tuple of its outputs."""
        if not isinstance(inputs, tuple | list):
            raise TypeError(f"{type(self).__name__}.apply: inputs must be a tuple, got {type(inputs).__name__}")
        return self._applied(inputs)

    # ---------------------------------------------------------------- how it is run

    def _within(self, application: RunningNode) -> FunctionNode:
        """A copy bound to one application; the instance itself may serve many at once."""
        twin = self._copy()
        twin._application = application
        return twin

    def _known(self) -> RunningNode:
        application: RunningNode | None = getattr(self, "_application", None)
        if application is None:
            raise RuntimeError(f"{type(self).__name__}: this is available only in forward and backward")
        return application

    def _function(self) -> Function:
        function = self._known().function
        if function is None:
            raise RuntimeError(f"{type(self).__name__}: inputs and outputs are available as Variables only in backward")
        return function

    def _retained(self) -> Retained:
        instance = self._function().arguments[0]
        if not hasattr(instance, "_kept"):  # its shapes are declared, so it was not run to find them
            instance._run_on_shapes()
        retained: Retained = instance._kept
        return retained

    def _run_on_shapes(self) -> None:
        """Trace `forward`, to see what it retains."""
        shapes_by_running(self._forward, [s.abstract() for s in self._inputs])

    def _forward(self, *arrays: Any) -> tuple[Any, ...]:
        node = self._within(RunningNode())
        result = self._returned(node.forward(*arrays))
        changed = attributes_set(node, vars(self))
        if changed:
            raise AttributeError(
                f"{type(self).__name__}.forward set {', '.join(map(repr, changed))} on self. It is traced once for "
                "many calls, so backward cannot read such attributes: return the value as another output and retain "
                "that, or compute it in backward from the retained inputs"
            )
        retained = node._application.retained
        _check_range(self, "retain_inputs", retained.inputs or (), len(arrays))
        _check_range(self, "retain_outputs", retained.outputs, len(result))
        if not hasattr(self, "_kept"):
            self._kept = retained
        return result


def _checked(indexes: Any, method: str) -> Indexes:
    try:
        return tuple([operator.index(i) for i in indexes])
    except TypeError:
        raise TypeError(f"{method}: expected a tuple of ints, got {indexes!r}") from None


def _check_range(node: FunctionNode, method: str, indexes: Indexes, count: int) -> None:
    for i in indexes:
        if not 0 <= i < count:
            raise ValueError(f"{type(node).__name__}.forward: {method}: must be between 0 and {count - 1}, got {i}")


def _all_gradients(f: Function, *gys: Variable) -> list[Variable | None]:
    """The rule: a gradient for each differentiable input."""
    indexes = tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable])
    return _gradients(f, gys, indexes, lambda i: None)


def _gradients(
    f: Function, gys: Sequence[Variable], indexes: Indexes, take: Callable[[int], Variable | None]
) -> list[Variable | None]:
    """The rule, given the inputs whose gradients are asked for; see `backward_registry.Rule.accumulate`."""
    instance: FunctionNode = f.arguments[0]
    node = instance._within(RunningNode(f))
    if type(node).backward_accumulate is FunctionNode.backward_accumulate:
        before: tuple[Variable | None, ...] = (None,) * len(indexes)
        gxs = _listed(node, "backward", node.backward(indexes, tuple(gys)), indexes)
    else:
        before = tuple([take(i) for i in indexes])
        gxs = _listed(node, "backward_accumulate", node.backward_accumulate(indexes, tuple(gys), before), indexes)
    results: list[Variable | None] = [None] * len(f.inputs)
    for i, gx, g in zip(indexes, gxs, before, strict=True):
        results[i] = g if gx is None else gx
    return results


def _listed(node: FunctionNode, method: str, gxs: Any, indexes: Indexes) -> tuple[Any, ...]:
    """The results of `method`, one for each of `indexes`; Chainer also allows one for each input."""
    gradients: tuple[Any, ...] = tuple(gxs) if isinstance(gxs, tuple | list) else (gxs,)
    if len(gradients) == len(indexes):
        return gradients
    if len(gradients) != len(node.inputs):
        raise ValueError(
            f"{type(node).__name__}.{method} returned {len(gradients)} gradients for indexes {indexes}; "
            "return one for each, in the same order, None where it is zero"
        )
    return tuple([gradients[i] for i in indexes])
