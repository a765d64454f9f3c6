"""nnabla's and Chainer's methods of Variables that query or change the graph around them.

Those that look for what is *below* a Variable, the functions that take it as an input, search all objects known to
Python's garbage collector, because a Variable does not know them: use them to build graphs, not in loops.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any

from ..extend import (
    Function,
    NdArray,
    Variable,
    engine,
    functions_of,
    operands_first,
    provide,
    warn_user,
)


def visit(self: Variable, f: Callable[[Function], Any]) -> None:
    """Call `f` once with each function that this Variable depends on, in topological order."""
    for function in _in_forward_order(self):
        f(function)


def visit_check(self: Variable, f: Callable[[Function], Any]) -> bool:
    """As `visit`, but stop at the first function for which `f` returns something true.

    Returns:
        Whether there was such a function.
    """
    return any(f(function) for function in _in_forward_order(self))


def _in_forward_order(x: Variable) -> list[Function]:
    """The functions above, each after its inputs': depth first, in the order of the inputs."""
    if x.parent is None:
        return []
    return operands_first([x.parent], lambda f: [v.parent for v in f.inputs if v.parent is not None])


def function_references(self: Variable) -> list[Function]:
    """The living functions that take this Variable as an input, oldest first."""
    readers = [f for f in _all_functions() if any([v is self for v in f.inputs])]
    return sorted(readers, key=lambda f: f.serial)


def no_grad(self: Variable) -> Variable:
    """Stop gradients at all functions that this Variable depends on, from now on, and return this Variable.

    `need_grad` of the outputs of these functions becomes False; leaves, which other graphs may share, keep theirs.
    """
    for y in _living_outputs(_in_forward_order(self)):
        y.need_grad = False
    return self


def unlinked(self: Variable, need_grad: bool | None = None) -> Variable:
    """`get_unlinked_variable`, under the name that nnabla has deprecated."""
    warn_user("unlinked() is deprecated, as in nnabla; use get_unlinked_variable()", DeprecationWarning)
    return self.get_unlinked_variable(need_grad)


def clear_all_graph_links(self: Variable) -> None:
    """Turn this Variable and everything it depends on into leaves with their current values: from now on gradients
    end here, as in truncated backpropagation through time."""
    _made_leaves(_living_outputs(_in_forward_order(self)))

# ---------------------------------------------------------------- Chainer's names


def creator(self: Variable) -> Function | None:
    """`parent`: the function that computes this Variable, or None for a leaf."""
    return self.parent


def unchain(self: Variable) -> None:
    """Turn this Variable into a leaf with its current value: from now on gradients end here."""
    if self.parent is not None:
        _made_leaves([self])


def unchain_backward(self: Variable) -> None:
    """`clear_all_graph_links`."""
    clear_all_graph_links(self)


def addgrad(self: Variable, var: Variable) -> None:
    """Add the gradient of `var` to this Variable's; as Variables of a graph, if both gradients are.

    Raises:
        TypeError: `var` is not a Variable.
        ValueError: Its shape or dtype differs.
    """
    if not isinstance(var, Variable):
        raise TypeError(f"addgrad: expected a Variable, got {type(var).__name__}")
    if var.spec is not self.spec:
        raise ValueError(f"addgrad: the gradient must be {self.spec}, like the Variable, got {var.spec}")
    if var.grad.is_zero:
        return
    mine, other = self.grad_var, var.grad_var
    is_empty = self.grad.is_zero
    if other is not None and (is_empty or mine is not None):
        self.grad_var = other if mine is None else mine + other
    else:
        self.g = var.g if is_empty else self.g + var.g


def rewire_on(self: Variable, var: Variable) -> None:
    """Replace this Variable by `var`: functions below it will be computed from the function that computes `var`.

    It takes over the function that computes `var`, and its data and gradient. `var` itself becomes a leaf that
    shares both.

    Raises:
        TypeError: `var` is not a Variable.
        ValueError: Shapes or dtypes differ, or `var` depends on this Variable, which would make a cycle.
    """
    if not isinstance(var, Variable):
        raise TypeError(f"rewire_on: var must be a Variable, got {type(var).__name__}")
    if var is self:
        return
    if var.spec is not self.spec:
        raise ValueError(f"rewire_on: var must be {self.spec}, like this Variable, got {var.spec}")
    if any([y is self for f in functions_of([var]) for y in f.inputs]):
        raise ValueError("rewire_on: var depends on this Variable, so the graph would have a cycle")
    below = _functions_below([self])
    self.take_place_of(var)
    _rearranged(below)


def reset_shape(self: Variable, shape: tuple[int, ...], force: bool = False) -> None:
    """Change the shape of a leaf that no function takes yet; its gradient becomes zeros.

    Args:
        shape: The new shape.
        force: Whether it may have another number of elements, which discards the value.

    Raises:
        ValueError: The number of elements differs, it is not a leaf, or functions were already applied to it, whose
            shapes would be wrong.
    """
    spec = NdArray(shape, self.dtype).spec
    if spec is self.spec:
        return
    if spec.size != self.size and not force:
        raise ValueError(f"reset_shape: shape {spec.shape} has {spec.size} elements, but the Variable has {self.size}. "
                         "Pass force=True to discard its value")
    if self.parent is not None or function_references(self):
        why = "it is the output of a function" if self.parent is not None else "functions were applied to it"
        raise ValueError(
            f"reset_shape: cannot make this Variable {spec}. Its shape and dtype are fixed at {self.spec}, because "
            f"{why}. Make a new Variable"
        )
    value = self.cell.view.reshape(spec.shape) if spec.size == self.size and not self.cell.is_zero else None
    self._grad = None
    self.spec, self._data = spec, NdArray.of_spec(spec)
    if value is not None:
        self.cell.set(value)


def _made_leaves(outputs: list[Variable]) -> None:
    """Turn Variables into leaves with their current values."""
    for y in outputs:
        _ = y.data  # computed while its function still exists
    below = _functions_below(outputs)
    for y in outputs:
        y.cut_off()
    _rearranged(below)


def _all_functions() -> list[Function]:
    """Every function that is alive."""
    return [f for f in gc.get_objects() if issubclass(type(f), Function)]


def _living_outputs(functions: Iterable[Function]) -> list[Variable]:
    return [y for f in functions for y in f.living_outputs()]


def _functions_below(variables: Iterable[Variable]) -> list[Function]:
    """All functions that depend on one of the Variables, in no particular order."""
    readers: dict[int, list[Function]] = {}
    for f in _all_functions():
        for x in f.inputs:
            readers.setdefault(id(x), []).append(f)
    below: dict[Function, None] = {}
    stack = list(variables)
    while stack:
        for f in readers.get(id(stack.pop()), ()):
            if f not in below:
                below[f] = None
                stack += _living_outputs([f])
    return list(below)


def _rearranged(functions: list[Function]) -> None:
    """Update all functions below a change: recompute their ranks, discard how they were run, and disown gradients of
    their old values."""
    inside = set(functions)
    ordered = operands_first(functions, lambda f: [x.parent for x in f.inputs if x.parent in inside])
    for f in ordered:
        f.rank = 1 + max([-1 if x.parent is None else x.parent.rank for x in f.inputs], default=-1)
    for gx in _living_outputs(_all_functions()):
        outputs = getattr(gx.derived_by, "outputs", ())
        if any([y.parent in inside for y in outputs]):
            gx.derived_by = None
    engine.forget(ordered)


provide(Variable, {
    "addgrad": addgrad,
    "clear_all_graph_links": clear_all_graph_links,
    "creator": property(creator),
    "function_references": property(function_references),
    "no_grad": no_grad,
    "reset_shape": reset_shape,
    "rewire_on": rewire_on,
    "unchain": unchain,
    "unchain_backward": unchain_backward,
    "unlinked": unlinked,
    "visit": visit,
    "visit_check": visit_check,
})
