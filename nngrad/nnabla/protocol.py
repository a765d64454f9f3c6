"""nnabla's protocol of PythonFunction: setup_impl, forward_impl, backward_impl, grad_depends_*.

The methods read and write cells. They run once on cells without values, which records them as a graph. If that works
(they only call `F` and operators), the recording is used: `forward_impl` is compiled like any graph, and
`backward_impl` is emitted again for each gradient, so gradients of any order follow. If a method asks for values (`.d`,
NumPy, Python's `if`), it is called on the host with NumPy arrays; a gradient computed there cannot be differentiated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..extend import Function, Program, Spec, Switched, Variable, apply, contained, linearize, lower, spec_of, x64_if
from ..functions.host_call import called_on_host
from ..functions.inlining import inlined
from ..functions.traced import array_value
from .arguments import Argument, Denied, HostCell, NeedsValues, Symbol

if TYPE_CHECKING:
    from .python_function import PythonFunction


class Recording(NamedTuple):
    """A recorded method, as a program of the cells that it reads."""

    program: Program
    constants: tuple[Variable, ...]
    """Leaves that it introduced."""
    written: tuple[int, ...]
    """The indices of the cells that it wrote to, in the order of the program's results."""


class Prepared(NamedTuple):
    """An instance after its `setup_impl`, and the shapes that were set."""

    instance: PythonFunction
    outputs: tuple[Spec, ...]


def set_up(instance: PythonFunction, inputs: tuple[Spec, ...]) -> Prepared:
    """A copy of `instance` on which `setup_impl` was called."""
    twin = object.__new__(type(instance))
    twin.__dict__.update(vars(instance))
    floating = [s.dtype for s in inputs if s.differentiable]
    with x64_if(any([s.needs_x64 for s in inputs])):
        dtype = np.dtype(jnp.result_type(*floating)) if floating else np.dtype(np.float32)
    outputs = [Argument(spec_of((), dtype), f"outputs[{o}]") for o in range(twin.min_outputs())]
    twin.setup_impl([Argument(s, f"inputs[{i}]") for i, s in enumerate(inputs)], outputs)
    return Prepared(twin, tuple([y.spec for y in outputs]))


@contained
def recorded(
    method: Callable[[], None], read: Sequence[Symbol], write: Sequence[Symbol], name: str
) -> Recording | None:
    """Record `method` on cells; None if it needs values."""
    Switched(builder=None, auto_forward=False, no_grad=False, precision=None).from_now_on()
    try:
        method()
    except NeedsValues:
        return None
    written = tuple([k for k, symbol in enumerate(write) if symbol.content is not None])
    results = [symbol.content for symbol in write if symbol.content is not None]
    linear = linearize(results, first=read, effects=False)
    constants = linear.leaves[len(read) :]
    if any([isinstance(x, Symbol) for x in constants]):
        return None  # it reads its own results
    if any([x.key_source is not None for x in constants]) or any([f.effects for f in linear.functions]):
        raise ValueError(f"{name} draws random numbers or updates Variables; do so outside, and pass results as inputs")
    if any([x.need_grad for x in constants]):
        raise ValueError(f"{name} reads a Variable that needs a gradient but is not an input; pass it as an input")
    return Recording(linear.program, tuple(constants), written)


# ---------------------------------------------------------------- forward


class RecordedForward:
    """A recorded `forward_impl`, with the values that it closed over at that time: two that compute the same are
    equal."""

    __slots__ = ("__dict__", "_arrays", "_key", "_program", "outputs")

    outputs: tuple[Spec, ...]

    def __init__(self, recording: Recording, outputs: tuple[Spec, ...]) -> None:
        self.outputs = outputs
        self._program = recording.program
        self._arrays = [np.array(x.cell.raw()) for x in recording.constants]
        self._key = recording.program, tuple(map(array_value, self._arrays))

    @functools.cached_property
    def heavy(self) -> bool:
        """True if it does much arithmetic for each element."""
        block = self._program.block
        costly = [step for step in block.steps if step[0].cost is not None]
        return any([op.is_heavy(tuple(map(block.spec, ins)), arguments) for op, arguments, ins in costly])

    def __call__(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return lower(self._program)(*arrays, *self._arrays)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RecordedForward) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def found(instance: PythonFunction, inputs: tuple[Spec, ...]) -> RecordedForward | tuple[Spec, ...]:
    """The computation of `forward_impl` as a function of the inputs; or, if it needs values, the shapes and dtypes of
    the outputs."""
    twin, outputs = set_up(instance, inputs)
    xs = [Symbol(s, f"inputs[{i}].data", False) for i, s in enumerate(inputs)]
    ys = [Symbol(s, f"outputs[{o}].data", True) for o, s in enumerate(outputs)]
    name = f"{type(instance).__name__}.forward_impl"
    recording = recorded(lambda: _forward_impl(twin, *_arguments(xs, ys)), xs, ys, name)
    if recording is None:
        return outputs
    if len(recording.written) != len(ys):
        missing = [y.label for y in ys if y.content is None]
        raise ValueError(f"{name} did not write to {', '.join(missing)}")
    return RecordedForward(recording, outputs)


def forward_on_host(
    instance: PythonFunction, inputs: tuple[Spec, ...], arrays: Sequence[Any], outputs: Sequence[jax.ShapeDtypeStruct]
) -> tuple[Any, ...]:
    """Run `forward_impl` on values, from a graph that JAX traces."""
    def compute(instance: PythonFunction, *values: Any) -> tuple[Any, ...]:
        twin = set_up(instance, inputs).instance
        xs = [HostCell(v, f"inputs[{i}].data", False) for i, v in enumerate(values)]
        ys = [HostCell(np.zeros(s.shape, s.dtype), f"outputs[{o}].data", True) for o, s in enumerate(outputs)]
        _forward_impl(twin, *_arguments(xs, ys))
        return tuple([y.view for y in ys])

    return called_on_host(compute, instance, outputs, arrays, type(instance).__name__)


def _forward_impl(twin: PythonFunction, xs: list[Argument], ys: list[Argument]) -> None:
    before = dict(vars(twin))
    twin.forward_impl(xs, ys)
    changed = attributes_set(twin, before)
    if changed:
        raise AttributeError(
            f"{type(twin).__name__}.forward_impl set {', '.join(map(repr, changed))} on self, but backward_impl cannot "
            "read such attributes: make the value another output, or compute it in backward_impl from the inputs"
        )


def _arguments(xs: Sequence[Any], ys: Sequence[Any]) -> tuple[list[Argument], list[Argument]]:
    """Arguments with these cells of data."""
    return _named("inputs", xs, [None] * len(xs)), _named("outputs", ys, [None] * len(ys))


def _named(name: str, data: Sequence[Any], grads: Sequence[Any], specs: Sequence[Spec] | None = None) -> list[Argument]:
    specs = [cell.spec for cell in data] if specs is None else specs
    cells = zip(specs, data, grads, strict=True)
    return [Argument(s, f"{name}[{i}]", cell, grad) for i, (s, cell, grad) in enumerate(cells)]


# ---------------------------------------------------------------- backward


class Gradient(NamedTuple):
    """The gradient of an instance: for which inputs, and on which data it depends."""

    instance: PythonFunction
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    wanted: tuple[int, ...]
    on_inputs: tuple[int, ...]
    """The inputs on whose data some gradient depends."""
    on_outputs: tuple[int, ...]
    """The outputs on whose data some gradient depends."""

    @property
    def down(self) -> list[bool]:
        """nnabla's `propagate_down`."""
        return [i in self.wanted for i in range(len(self.inputs))]

    def __repr__(self) -> str:
        return f"gradient of {self.instance!r} at inputs {self.wanted}"


def gradient_of(f: Function, wanted: tuple[int, ...]) -> Gradient:
    """The gradient of an application at the inputs `wanted`, as its methods are now."""
    instance: PythonFunction = f.arguments[0]
    of_input, of_output = instance.grad_depends_input_data, instance.grad_depends_output_data
    return Gradient(
        instance,
        tuple([x.spec for x in f.inputs]),
        f.specs,
        wanted,
        tuple([j for j in range(len(f.inputs)) if any([of_input(i, j) for i in wanted])]),
        tuple([o for o in range(len(f.specs)) if any([of_output(i, o) for i in wanted])]),
    )


def backward_recording(gradient: Gradient) -> Recording | None:
    """Record `backward_impl` as a program of the data of inputs and outputs and of the gradients of the outputs; None
    if it needs values."""
    instance, inputs, outputs, _, on_x, on_y = gradient
    twin, _ = set_up(instance, inputs)
    xs = [Symbol(s, f"inputs[{i}].data", False) for i, s in enumerate(inputs)]
    ys = [Symbol(s, f"outputs[{o}].data", False) for o, s in enumerate(outputs)]
    gxs = [Symbol(s, f"inputs[{i}].grad", True) for i, s in enumerate(inputs)]
    gys = [Symbol(s, f"outputs[{o}].grad", False) for o, s in enumerate(outputs)]
    arguments = (
        _named("inputs", _denied(xs, on_x, "grad_depends_input_data"), gxs, inputs),
        _named("outputs", _denied(ys, on_y, "grad_depends_output_data"), gys, outputs),
    )
    name = f"{type(instance).__name__}.backward_impl"
    accum = [False] * len(xs)
    return recorded(lambda: twin.backward_impl(*arguments, gradient.down, accum), [*xs, *ys, *gys], gxs, name)


def _denied(cells: Sequence[Any], allowed: tuple[int, ...], method: str) -> list[Any]:
    name = "inputs" if method == "grad_depends_input_data" else "outputs"
    return [cell if i in allowed else Denied(f"{name}[{i}].data", method) for i, cell in enumerate(cells)]


def rule_of_protocol(
    f: Function, gys: Sequence[Variable], indexes: tuple[int, ...], take: Callable[[int], Variable | None]
) -> list[Variable | None]:
    """The rule: `backward_impl` as part of the graph, or called on the host."""
    results: list[Variable | None] = [None] * len(f.inputs)
    if not indexes:
        return results
    gradient = gradient_of(f, indexes)
    recording = backward_recording(gradient)
    if recording is not None:
        emitted = inlined(recording.program.block, [*f.inputs, *f.outputs, *gys, *recording.constants])
        for i, gx in zip(recording.written, emitted, strict=True):
            results[i] = gx
        return results
    inputs = (*[f.inputs[i] for i in gradient.on_inputs], *[f.outputs[o] for o in gradient.on_outputs], *gys)
    for i, gx in zip(indexes, apply(type(gradient.instance)._gradient_op, inputs, (gradient,)), strict=True):
        results[i] = gx
    return results


def all_gradients(f: Function, *gys: Variable) -> list[Variable | None]:
    """The rule for a caller that does not say which gradients are wanted."""
    return rule_of_protocol(f, gys, tuple([i for i, x in enumerate(f.inputs) if x.spec.differentiable]), lambda i: None)


def host_gradient(gradient: Gradient, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run `backward_impl` on values, from a graph that JAX traces."""
    _, inputs, outputs, indexes, on_x, on_y = gradient
    down = gradient.down

    def compute(instance: PythonFunction, *values: Any) -> tuple[Any, ...]:
        twin = set_up(instance, inputs).instance
        rest = iter(values)
        xs = [HostCell(next(rest), f"inputs[{i}].data", False) if i in on_x else None for i in range(len(down))]
        ys = [HostCell(next(rest), f"outputs[{o}].data", False) if o in on_y else None for o in range(len(outputs))]
        gys = [HostCell(v, f"outputs[{o}].grad", False) for o, v in enumerate(rest)]
        gxs = [HostCell(np.zeros(s.shape, s.dtype), f"inputs[{i}].grad", True) for i, s in enumerate(inputs)]
        arguments = (
            _named("inputs", _denied(xs, on_x, "grad_depends_input_data"), gxs, inputs),
            _named("outputs", _denied(ys, on_y, "grad_depends_output_data"), gys, outputs),
        )
        twin.backward_impl(*arguments, down, [False] * len(down))
        return tuple([gxs[i].view for i in indexes])

    name = f"gradient of {type(gradient.instance).__name__}"
    return called_on_host(compute, gradient.instance, tuple([inputs[i].abstract() for i in indexes]), arrays, name)


def attributes_set(instance: object, before: Mapping[str, Any]) -> list[str]:
    """The names of the attributes of `instance` that differ from those `before`."""
    return sorted([name for name, v in vars(instance).items() if name not in before or before[name] is not v])
