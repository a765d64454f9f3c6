"""What `torch.export` says of a module: a graph of core ATen operators, which is read as functions of F."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import default_decompositions, export
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from ..extend import Variable
from .operators import KEPT, OPERATORS, Result, Unsupported, in_dtype

Inner = Callable[[Any, Sequence[Any]], list[Any]]
"""Calls a module with tensors in their places among its arguments, and lists the tensors of its result."""


@torch.library.custom_op("nngrad::stop", mutates_args=())  # type: ignore[untyped-decorator]
def _stop(x: torch.Tensor) -> torch.Tensor:
    """`x`, through which no gradient flows: decompositions leave it in the graph, but lose `detach` and `no_grad`."""
    return x.clone()


@_stop.register_fake  # type: ignore[untyped-decorator]
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Exported(NamedTuple):
    """A module's graph for one kind of arguments."""

    graph: Any
    inputs: list[tuple[str, Any]]
    """For each placeholder the name of a parameter or buffer, or else '' and a constant tensor or None."""
    updated: list[str | None]
    """For each output the name of the buffer of which it is the new value, or None."""


class _Flat(torch.nn.Module):  # type: ignore[misc]
    """A module as a function from tensors to a list of tensors."""

    def __init__(self, inner: torch.nn.Module, call: Inner) -> None:
        super().__init__()
        self.inner, self._call = inner, call

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return self._call(self.inner, tensors)


class _Watch(TorchFunctionMode):  # type: ignore[misc]
    """Refuses derivatives that a trace would lose: those of `autograd.Function`, and hooks on tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("register_hook", "register_post_accumulate_grad_hook"):
            raise Unsupported("a hook on a gradient")
        frame, apply = sys._getframe(1), torch.autograd.Function.apply.__func__.__code__
        while frame is not None:
            if frame.f_code is apply:
                raise Unsupported(f"{frame.f_locals['cls'].__qualname__}, an autograd.Function with a backward of its "
                                  "own, which cannot be differentiated further; write it with PyTorch's functions")
            frame = frame.f_back  # type: ignore[assignment]
        return func(*args, **(kwargs or {}))


def exported(module: torch.nn.Module, call: Inner, shapes: Sequence[tuple[tuple[int, ...], str]]) -> Exported:
    """The graph of a module for arguments of these shapes and dtypes.

    Raises:
        Unsupported: `torch.export` cannot trace it, or the trace would lose what it does.
    """
    device = next((p.device for p in module.parameters()), None)
    examples = tuple([torch.zeros(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in shapes])
    table = default_decompositions()
    for overload in [o for o in table if o._schema.name.removeprefix("aten::") in KEPT]:
        table.pop(overload)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, of what the reader cannot change
            with _Watch(), sdpa_kernel(SDPBackend.MATH):  # fused attention has no parts
                program = export(_Flat(module, call), examples, strict=False)
            buffers = {s.arg.name for s in program.graph_signature.input_specs if s.kind == InputKind.BUFFER}
            _mark_stops(program.graph_module, buffers)
            program = program.run_decompositions(table)
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"torch.export: {type(error).__name__}: {error}") from error
    signature = program.graph_signature
    inputs = [
        (_own(s.target), None) if s.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        else ("", program.constants[s.target] if s.kind == InputKind.CONSTANT_TENSOR else None)
        for s in signature.input_specs
    ]  # fmt: skip
    for s in signature.output_specs:
        if s.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_OUTPUT):
            what = _own(s.target) if s.kind == OutputKind.PARAMETER_MUTATION else f"the argument {s.target}"
            raise Unsupported(f"a change of {what} in place")
    updated = [_own(s.target) if s.kind == OutputKind.BUFFER_MUTATION else None for s in signature.output_specs]
    return Exported(program.graph, inputs, updated)


def _own(name: str) -> str:
    return name.removeprefix("inner.")


def _mark_stops(module: Any, buffers: set[str]) -> None:
    """Mark in a graph, before it is decomposed, where gradients stop: at `detach`, and at results of `no_grad`."""
    for node in list(module.graph.nodes):
        if str(node.target) == "aten.detach.default":
            with module.graph.inserting_before(node):
                stopped = module.graph.call_function(torch.ops.nngrad.stop.default, (node.args[0],))
            stopped.meta = dict(node.meta)
            node.args = (stopped,)
        elif str(node.target) == "wrap_with_set_grad_enabled":
            enabled, inner, *inputs = node.args
            body = getattr(module, inner.target)
            _mark_stops(body, buffers)
            if not enabled:
                _stop_results(body, [str(x) in buffers for x in inputs])
    module.recompile()


def _stop_results(body: Any, is_buffer: list[bool]) -> None:
    """Stop gradients at the results of a region without gradients."""
    nodes = list(body.graph.nodes)
    changeable = dict(zip([n for n in nodes if n.op == "placeholder"], is_buffer, strict=True))
    for node in nodes:
        if str(node.target) == "wrap_with_set_grad_enabled":
            raise Unsupported("enable_grad within no_grad")
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            changed = node.kwargs.get("out", node.args[0])
            while changed not in changeable and _is_view(changed):
                changed = changed.args[0]
            if not changeable.get(changed, True):
                raise Unsupported("no_grad: a tensor that is no buffer is changed in place there")
    (output,) = [n for n in nodes if n.op == "output"]
    with body.graph.inserting_before(output):
        output.args = (tuple([
            body.graph.call_function(torch.ops.nngrad.stop.default, (x,)) if isinstance(x, torch.fx.Node) else x
            for x in output.args[0]
        ]),)  # fmt: skip
    body.recompile()


def _is_view(node: Any) -> bool:
    """True if a node's result shares the memory of its first argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any([r.alias_info is not None for r in schema.returns])


def numpy_name(dtype: torch.dtype) -> str:
    """The NumPy name of a dtype."""
    return str(dtype).removeprefix("torch.")


def run(module_graph: Exported, inputs: Sequence[Variable]) -> list[Any]:
    """The outputs of a graph: functions of F, applied to Variables for its placeholders.

    Raises:
        Unsupported: An operator has no function here; the message names it and the module that calls it.
    """
    values: dict[Any, Any] = {}
    in_order = iter(inputs)
    for node in module_graph.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(in_order)
        elif node.op == "output":
            return list(torch.fx.node.map_arg(node.args[0], values.__getitem__))
        else:
            args, options = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.target is operator.getitem:
                values[node] = _part(node, args[0], args[1])
            else:
                values[node] = _applied(node, args, options)
    raise AssertionError("a graph ends at its output")


def _part(node: Any, parts: Any, index: int) -> Any:
    if index >= len(parts) or parts[index] is None:
        raise Unsupported(f"{_where(node)} the output {index} of {node.args[0].target}")
    return parts[index]


def _applied(node: Any, args: Any, options: Mapping[str, Any]) -> Any:
    name = str(node.target)
    function = OPERATORS.get(name) or OPERATORS.get(".".join(name.split(".")[:2]))
    if function is None:
        raise Unsupported(f"{_where(node)} {name}")
    is_single = not isinstance(node.meta["val"], tuple | list)
    said = [None if v is None else Result(tuple(v.shape), numpy_name(v.dtype))
            for v in ([node.meta["val"]] if is_single else node.meta["val"])]
    hidden = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator", "dtype")
    try:
        results = function(said[0], *args, **{k: v for k, v in options.items() if k not in hidden})
    except Unsupported as error:
        raise Unsupported(f"{_where(node)} {name} with {error}") from None
    assert is_single is not isinstance(results, list | tuple), name
    listed = []
    for result, y in zip(said, [results] if is_single else results, strict=False):
        if y is not None and result is not None:
            y = in_dtype(y, result.dtype)
            if y.shape != result.shape:
                raise Unsupported(f"{_where(node)} {name}: shape {y.shape} in place of {result.shape}")
        listed.append(y)
    return listed[0] if is_single else listed


def _where(node: Any) -> str:
    """The module of which a node is part, for messages."""
    stack = list((node.meta.get("nn_module_stack") or {"": ("inner", "the module")}).values())
    path, kind = stack[-1]
    path = path.partition("inner")[2].lstrip(".")
    kind = (kind if isinstance(kind, str) else kind.__qualname__).rpartition(".")[2]
    return f"{path} ({kind}) needs" if path else f"{kind} needs"
