"""A Variable's links to the graph around it: query and change them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from .engine import engine
from .messages import warn_user
from .ndarray import NdArray
from .shown import ShownFunction
from .traverse import by_rank, functions_of, operands_first
from .value import Deferred

if TYPE_CHECKING:
    from .function import Function
    from .spec import Spec
    from .variable import Variable


class Links:
    """The methods of `Variable` that traverse its graph or relink it.

    Those that look for what is *below* a Variable, the functions that take it as an input, search all objects known to
    Python's garbage collector, because a Variable does not know them: use them to build graphs, not in loops.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        parent: Function | None
        need_grad: Any

    def visit(self, f: Callable[[Function], Any]) -> None:
        """Call `f` once with each function that this Variable depends on, in topological order."""
        for function in self._in_forward_order():
            f(function)

    def visit_check(self, f: Callable[[Function], Any]) -> bool:
        """As `visit`, but stop at the first function for which `f` returns something true.

        Returns:
            Whether there was such a function.
        """
        return any(f(function) for function in self._in_forward_order())

    def _in_forward_order(self) -> list[Function]:
        """The functions above, each after its inputs': depth first, in the order of the inputs."""
        if self.parent is None:
            return []
        return operands_first([self.parent], lambda f: [x.parent for x in f.inputs if x.parent is not None])

    @property
    def function_references(self) -> list[Function]:
        """The living functions that take this Variable as an input, oldest first."""
        found = [f for f in _all_functions() if any([x is self for x in f.inputs])]
        return sorted(found, key=lambda f: f.serial)

    def no_grad(self) -> Variable:
        """Stop gradients at all functions that this Variable depends on, from now on, and return this Variable.

        `need_grad` of the outputs of these functions becomes False; leaves, which other graphs may share, keep theirs.
        """
        for y in _living_outputs(self._in_forward_order()):
            y.need_grad = False
        return cast("Variable", self)

    def unlinked(self, need_grad: bool | None = None) -> Variable:
        """`get_unlinked_variable`, under the name that nnabla has deprecated."""
        warn_user("unlinked() is deprecated, as in nnabla; use get_unlinked_variable()", DeprecationWarning)
        return cast("Variable", self).get_unlinked_variable(need_grad)

    def clear_all_graph_links(self) -> None:
        """Turn this Variable and everything it depends on into leaves with their current values: from now on gradients
        end here, as in truncated backpropagation through time."""
        _made_leaves(_living_outputs(self._in_forward_order()))

    # ---------------------------------------------------------------- Chainer's names

    @property
    def creator(self) -> Function | None:
        """`parent`: the function that computes this Variable, or None for a leaf."""
        return self.parent

    def unchain(self) -> None:
        """Turn this Variable into a leaf with its current value: from now on gradients end here."""
        if self.parent is not None:
            _made_leaves([cast("Variable", self)])

    def unchain_backward(self) -> None:
        """`clear_all_graph_links`."""
        self.clear_all_graph_links()

    def addgrad(self, var: Variable) -> None:
        """Add the gradient of `var` to this Variable's; as Variables of a graph, if both gradients are.

        Raises:
            TypeError: `var` is not a Variable.
            ValueError: Its shape or dtype differs.
        """
        x = cast("Variable", self)
        if not hasattr(var, "get_unlinked_variable"):
            raise TypeError(f"addgrad: expected a Variable, got {type(var).__name__}")
        if var.spec is not x.spec:
            raise ValueError(f"addgrad: the gradient must be {x.spec}, like the Variable, got {var.spec}")
        if var._grad is None or var.grad.is_zero:
            return
        own, other = x.grad_var, var.grad_var
        is_empty = x._grad is None or x.grad.is_zero
        if other is not None and (is_empty or own is not None):
            keep_gradient(x, other if own is None else own + other)
        else:
            x.g = var.g if is_empty else x.g + var.g

    def rewire_on(self, var: Variable) -> None:
        """Replace this Variable by `var`: functions below it will be computed from the function that computes `var`.

        It takes over the function that computes `var`, and its data and gradient. `var` itself becomes a leaf that
        shares both.
        Raises:
            TypeError: `var` is not a Variable.
            ValueError: Shapes or dtypes differ, or `var` depends on this Variable, which would make a cycle.
        """
        x = cast("Variable", self)
        if not hasattr(var, "get_unlinked_variable"):
            raise TypeError(f"rewire_on: var must be a Variable, got {type(var).__name__}")
        if var is x:
            return
        if var.spec is not x.spec:
            raise ValueError(f"rewire_on: var must be {x.spec}, like this Variable, got {var.spec}")
        if any([y is x for f in functions_of([var]) for y in f.inputs]):
            raise ValueError("rewire_on: var depends on this Variable, so the graph would have a cycle")
        below = _functions_below([x])
        f, at, need_grad = var.parent, var._at, var._need_grad
        _cut_off(x)
        _cut_off(var)
        x.parent, x.index, x._at, x._need_grad = f, var.index, at, need_grad
        x._data, x._grad, x._source = var.cell, var.grad, var._source
        if f is not None:
            f._outputs = (*f._outputs[: x.index], weakref.ref(x), *f._outputs[x.index + 1 :])
        _rearranged(below)


def become(x: Variable, spec: Spec, what: str) -> None:
    """Change the shape or dtype of a leaf that no function takes yet; its gradient becomes zeros.

    Raises:
        ValueError: It is not a leaf, or functions were already applied to it, whose shapes and dtypes would be wrong.
        TypeError: It needs a gradient, and cannot have one in that dtype.
    """
    if x.parent is not None or x.function_references:
        why = "it is the output of a function" if x.parent is not None else "functions were applied to it"
        raise ValueError(
            f"{what}: cannot make this Variable {spec}. Its shape and dtype are fixed at {x.spec}, because {why}. "
            f"Make a new Variable, or set its value by x.d = ..., which converts to {x.dtype.name}"
        )
    if x.need_grad and not spec.differentiable:
        raise TypeError(f"{what}: a Variable with need_grad must have a floating dtype, got {spec.dtype.name}")
    x._grad = None
    x.spec, x._data = spec, NdArray.of_spec(spec)


def keep_gradient(x: Variable, gradient: Variable | None) -> None:
    """Set the gradient Variable of `x`; `x.g` is its value, computed when it is read. None clears it."""
    if gradient is None:
        x.cleargrad()
        return
    if not hasattr(gradient, "get_unlinked_variable"):
        kind = type(gradient).__name__
        raise TypeError(f"grad_var: expected a Variable or None, got {kind}; set arrays through .g")
    if gradient.spec is not x.spec:
        raise ValueError(f"grad_var: the gradient must be {x.spec}, like the Variable, got {gradient.spec}")
    cell = x.grad
    cell.variable = gradient
    if gradient.parent is not None or gradient.cell is not cell:
        cell.defer(_ValueOf(gradient, cell).value())


class _ValueOf:
    """Computes a Variable's value for another cell."""

    __slots__ = ("_cell", "_value", "_variable")

    def __init__(self, variable: Variable, cell: NdArray) -> None:
        self._variable = variable
        self._cell = weakref.ref(cell)  # the cell holds this object

    def value(self) -> Deferred:
        """The deferred Value for the cell to hold."""
        value = Deferred(self)
        self._value = weakref.ref(value)
        return value

    def run(self) -> None:
        """Compute the value."""
        variable, value = self._variable, self._value()
        if variable.parent is not None and (variable.cell is self._cell() or not variable.is_computed):
            engine.evaluate(variable)
        if value is not None:
            value.fill(variable.cell.raw())


_GONE: Any = weakref.ref(set())
"""Stands for an output of a function that nobody holds."""


def _made_leaves(outputs: list[Variable]) -> None:
    """Turn Variables into leaves with their current values."""
    for y in outputs:
        _ = y.data  # computed while its function still exists
    below = _functions_below(outputs)
    for y in outputs:
        _cut_off(y)
    _rearranged(below)


def _cut_off(x: Variable) -> None:
    """Turn a Variable into a leaf; its function makes another output in its place if needed."""
    f = x.parent
    if f is not None:
        x._need_grad = x.need_grad
        x._grad = None if x._grad is None else x.grad
        f._outputs = (*f._outputs[: x.index], _GONE, *f._outputs[x.index + 1 :])
        x.parent = x._at = x._group = x._derived = None


def _all_functions() -> list[Function]:
    """Every function that is alive."""
    return [f for f in gc.get_objects() if issubclass(type(f), ShownFunction)]


def _living_outputs(functions: Iterable[Function]) -> list[Variable]:
    return [y for f in functions for ref in f._outputs if (y := ref()) is not None]


def _functions_below(variables: Iterable[Variable]) -> list[Function]:
    """All functions that depend on one of the Variables, by ascending rank."""
    readers: dict[int, list[Function]] = {}
    for f in _all_functions():
        for x in f.inputs:
            readers.setdefault(id(x), []).append(f)
    found: dict[Function, None] = {}
    stack = list(variables)
    while stack:
        for f in readers.get(id(stack.pop()), ()):
            if f not in found:
                found[f] = None
                stack += _living_outputs([f])
    return sorted(found, key=by_rank)


def _rearranged(functions: list[Function]) -> None:
    """Update all functions below a change: recompute their ranks, discard how they were run, and disown gradients of
    their old values."""
    inside = set(functions)
    ordered = operands_first(functions, lambda f: [x.parent for x in f.inputs if x.parent in inside])
    for f in ordered:
        f.rank = 1 + max([-1 if x.parent is None else x.parent.rank for x in f.inputs], default=-1)
    for gx in _living_outputs(_all_functions()):
        outputs = getattr(gx._derived, "outputs", ())
        if any([y.parent in inside for y in outputs]):
            gx._derived = None
    engine.forget(ordered)
