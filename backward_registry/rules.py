"""Backward rules: their type, the decorators that register them, and the registry."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakSet, WeakValueDictionary

if TYPE_CHECKING:
    from nngrad.graph import Function, Op, Variable
    from nngrad.graph.body_op import BodyOp

Gradients: TypeAlias = "Variable | Sequence[Variable | None] | None"
"""The result of a rule: one gradient for each input, alone if there is one input; None for zero."""
RuleFunction = Callable[..., Gradients]


class Rule(NamedTuple):
    """A backward rule and its properties."""

    function: RuleFunction
    kind: str
    """'rule', 'adjoint pair', 'bilinear', 'non-differentiable', 'user' or 'forward only' (which raises)."""
    exact: bool
    """Whether it gives the true derivative; surrogates do not."""
    module: str
    accumulate: Callable[..., Any] | None = None
    """For a rule that asks which gradients are wanted: `accumulate(f, gys, indexes, take)` in place of
    `function(f, *gys)`, with the indexes of the inputs that need one. `take(i)` hands over the sum of what has
    arrived at input `i` so far, or None; whoever takes it returns it with the new gradient added."""
    tangents: Callable[..., Any] | None = None
    """For an op with a forward mode of its own: `tangents(f, ts, read)`, the tangents of the outputs, from those of the
    inputs, with None for zero; None if it has none for this function. `read` says of each output whether somebody reads
    it; the others' tangents may be left out."""
    limits: Callable[..., Any] | None = None
    """For a rule with quotients that may be 0 / 0: `limits(f, gys, near)` in place of `function(f, *gys)`. `near` tells
    how the gradients depend on the outputs of `f`, from which the limits follow; None in `gys` is a zero. Tangents of
    single functions cannot have such limits, so there is no forward mode; see `spectral_limits.py`."""
    spectral: tuple[int, ...] = ()
    """For a rule with limits: the axis of each output, from the end, that counts what the limits are about."""

    def __call__(self, f: Function, *gys: Variable) -> Gradients:
        return self.function(f, *gys)


OWN = ("nngrad.", "backward_registry.")
"""How the modules of rules begin that are nngrad's own, which give the same for the same function each time."""


class MissingRule(NotImplementedError):
    """An op between the outputs and the inputs of a gradient has no backward rule."""


class Registry(Mapping[str, Rule]):
    """Rules by name: nnabla's type name ("Tanh") or the function's ("tanh")."""

    def __init__(self) -> None:
        # Each rule is kept on its op, so that both go when nothing else refers to the op: a user's class, say.
        self.place = object()
        """The key of its rules there."""
        self._known: WeakSet[Op] = WeakSet()
        self._ops: WeakValueDictionary[str, Op] = WeakValueDictionary()
        self._lock = threading.Lock()
        self.version = 0
        """Counts changes, so that what was derived from the rules knows when it is out of date. nngrad's own rules come
        with their ops when a package is imported, and change nothing that was derived before."""

    def add(self, op: Op, rule: Rule, replace: bool = False) -> None:
        """Enter the rule of `op`."""
        with self._lock:
            known_rule = self.find(op)
            if known_rule is not None and not replace:
                raise ValueError(f"{op.name} already has a backward rule, in {known_rule.module}")
            op.rules[self.place] = rule
            self._known.add(op)
            for name in (op.name, op.type_name):
                known = self._ops.get(name)
                # A function of a user's own does not take the name of one of nngrad's.
                if known is None or not known.module.startswith("nngrad."):
                    self._ops[name] = op
            self.version += known_rule is not None or not rule.module.startswith(OWN)

    def find(self, op: Op) -> Rule | None:
        """The rule of `op`, or None."""
        rule: Rule | None = op.rules.get(self.place)
        return rule

    def op(self, name: str) -> Op:
        """The op called `name`."""
        try:
            return self._ops[name]
        except KeyError:
            raise KeyError(f"no op is named {name!r}; show_registry() lists all ops. A function composed of others has "
                           "no rule: to give it another gradient, use nn.custom_gradient") from None

    def __getitem__(self, name: str) -> Rule:
        rule: Rule = self.op(name).rules[self.place]
        return rule

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(op.type_name for op in self._known))

    def __len__(self) -> int:
        return len(self._known)

    def ops(self) -> list[tuple[Op, Rule]]:
        """Every op that has a rule, by name."""
        return sorted([(op, op.rules[self.place]) for op in self._known], key=lambda entry: entry[0].name)


registry = Registry()


def backward(op: Op, exact: bool = True) -> Callable[[RuleFunction], RuleFunction]:
    """Register the decorated function as the backward rule of `op`.

    Args:
        op: The op.
        exact: False where the rule is not the derivative of the forward (straight-through estimators).
    """

    def enter(rule: RuleFunction) -> RuleFunction:
        registry.add(op, Rule(rule, "rule", exact, rule.__module__))
        return rule

    return enter


def backward_with_limits(op: Op, axes: tuple[int, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as `Rule.limits` of `op`, whose outputs count spectral values along `axes`."""

    def enter(limits: Callable[..., Any]) -> Callable[..., Any]:
        def rule(f: Function, *gys: Variable) -> Gradients:
            gx: Gradients = limits(f, gys, None)
            return gx

        rule.__doc__ = limits.__doc__
        registry.add(op, Rule(rule, "rule", True, limits.__module__, limits=limits, spectral=axes))
        return limits

    return enter


def slopes(op: Op, formula: str, function: Callable[..., Any], exact: bool = True) -> None:
    """Register the rule of an op with one result: the gradient times the slopes that `function` returns, one for each
    input (several in a tuple). The parameters of `function` are named as the op's inputs, its arguments, or `y`, the
    result. `formula` becomes the rule's docstring, and `exact` is as in `backward`."""
    template = "gy * {}" if len(op.input_names) == 1 else "[gy * slope for slope in {}]"
    _enter_by_name(op, formula, function, template, exact, _caller_module())


def gradients(op: Op, formula: str, function: Callable[..., Gradients], exact: bool = True) -> None:
    """Register the rule of an op with one result: `function` returns a gradient for each input (several in a tuple).
    As in `slopes`, except that a parameter may also be `gy`, the incoming gradient."""
    _enter_by_name(op, formula, function, "{}", exact, _caller_module())


def _enter_by_name(
    op: Op, formula: str, function: Callable[..., Any], template: str, exact: bool, module: str
) -> None:
    """Enter a rule that calls `function` with the values that its parameters name; `found` is a template for the rule's
    result. It is compiled, since rules are called for each function of a graph."""
    places = {"gy": "gy", "y": "f.outputs[0]"} | {name: f"f.args[{name!r}]" for name in op.argument_names}
    places |= {name: f"f.inputs[{i}]" for i, name in enumerate(op.input_names)}
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if unknown := sorted(set(names) - set(places)):
        raise ValueError(f"{op.name}: the op has no inputs or arguments {', '.join(unknown)}, which its rule takes")
    call = f"function({', '.join([places[name] for name in names])})"
    rule: RuleFunction = eval(f"lambda f, gy: {template.format(call)}", {"function": function})
    rule.__doc__ = formula
    registry.add(op, Rule(rule, "rule", exact, module))


def adjoint_pair(a: Op, b: Op) -> None:
    """Register rules for two linear ops that are each other's transpose. Only the first input has a derivative if the
    others are positions.

    Each takes the arguments of the other that it has, and `b` may also take the `shape` of its result.
    """
    module = _caller_module()
    for op, transpose in ((a, b), (b, a)):
        registry.add(op, Rule(_transposed(op, transpose), "adjoint pair", True, module))


def _transposed(op: Op, transpose: Op) -> RuleFunction:
    """The rule of `op`: its transpose, applied to the incoming gradients."""

    def rule(f: Function, *gys: Variable) -> Any:
        places = () if op.linear == "together" else f.inputs[1:]
        gx: Any = transpose(*gys, *places, **_arguments_for(f, transpose, f.inputs[0]))
        return (gx, *[None] * len(places)) if places else gx

    return rule


def _arguments_for(f: Function, op: Op, x: Variable) -> dict[str, Any]:
    """The arguments for an op whose result is like `x`: those of `f` that it takes too, and the `shape` of `x`."""
    arguments = f.args | {"shape": x.shape}
    return {name: arguments[name] for name in op.argument_names if name in arguments}


def of_bodies(*ops: BodyOp, kind: str = "rule") -> None:
    """Register the rules that ops with bodies have as methods, which add nothing to gradients that have arrived."""
    module = _caller_module()

    def accumulated(f: Any, gys: Sequence[Variable], indexes: tuple[int, ...], take: Any) -> Gradients:
        gxs: Gradients = f.op.gradients(f, gys, indexes)
        return gxs

    for op in ops:
        registry.add(op, Rule(op.backward, kind, True, module, accumulated, op.tangents))


def bilinear_family(
    product: Op, left: Op, right: Op, sizes: Callable[[Function, Variable], dict[str, Any]] | None = None
) -> None:
    """Close a bilinear op under differentiation. The three are one scalar T = <y, product(x, w)>:

        product(x, w) = dT/dy        left(y, w) = dT/dx        right(y, x) = dT/dw

    T is linear in each of its slots, so an incoming gradient takes the slot of the op it reached.
    `left` and `right` take, beside the arguments of `product`, the `shape` of what they return, or `sizes` of it. The
    inputs after the first two say where something is taken or put, and have no derivative.
    """
    module = _caller_module()

    def result_of(f: Function, op: Op, like: Variable, *inputs: Variable) -> Variable:
        """The result of `op`, one of the three: an array like `like`."""
        size = sizes(f, like) if sizes is not None and op is left else {}
        y: Variable = op(*inputs, *f.inputs[2:], **_arguments_for(f, op, like), **size)
        return y

    def product_rule(f: Function, gy: Variable) -> Gradients:
        x, w, *places = f.inputs
        return result_of(f, left, x, gy, w), result_of(f, right, w, gy, x), *[None] * len(places)

    def left_rule(f: Function, gx: Variable) -> Gradients:
        y, w, *places = f.inputs
        return result_of(f, product, y, gx, w), result_of(f, right, w, y, gx), *[None] * len(places)

    def right_rule(f: Function, gw: Variable) -> Gradients:
        y, x, *places = f.inputs
        return result_of(f, product, y, x, gw), result_of(f, left, x, y, gw), *[None] * len(places)

    for op, rule in ((product, product_rule), (left, left_rule), (right, right_rule)):
        registry.add(op, Rule(rule, "bilinear", True, module))


def non_differentiable(*ops: Op, exact: bool = True) -> None:
    """Register ops through which no gradient passes.

    Args:
        ops: The ops.
        exact: False where there is one, and it is left out on purpose.
    """
    module = _caller_module()
    for op in ops:
        registry.add(op, Rule(lambda f, *gys: (None,) * len(f.inputs), "non-differentiable", exact, module))


def register(name: str, rule: RuleFunction, exact: bool = False) -> None:
    """Set or replace the rule of the op called `name`, in nnabla's protocol:

        rule(grad_outputs, inputs, input_shapes, outputs, output_shapes, **arguments)

    with lists of Variables and of shapes, returning one gradient per input (None for zero). The arguments of a
    function of your own are what its property `args` says, a dict; without one there are none.

    Args:
        name: nnabla's type name or the function's name.
        rule: The rule.
        exact: Whether it is the true derivative; optimisations that rest on calculus ask for it.

    Raises:
        KeyError: No op has the name, as of functions that are composed of others, and have no rules.
    """
    if not callable(rule):
        raise TypeError(f"rule: expected a function, got {rule!r}")

    def function(f: Function, *gys: Variable) -> Gradients:
        inputs, outputs = list(f.inputs), list(f.outputs)
        shapes = [x.shape for x in inputs], [y.shape for y in outputs]
        arguments: Any = f.args
        if list(arguments) == ["instance"]:  # of a user's own function
            arguments = getattr(arguments["instance"], "args", None)
        arguments = arguments if isinstance(arguments, Mapping) else {}
        return rule(list(gys), inputs, shapes[0], outputs, shapes[1], **arguments)

    module = getattr(rule, "__module__", "")
    registry.add(registry.op(name), Rule(function, "user", exact, module), replace=True)


def missing(op: Op, path: str) -> MissingRule:
    """The error for an op without a rule, which says where the gradient met the op, and what to write."""
    inputs = "xs" if op.variadic else ", ".join(op.input_names)
    unpack = f"{inputs} = f.inputs" if op.variadic else f"({inputs},) = f.inputs"
    home = op.module.replace("nngrad.functions.", "backward_registry.").replace(".", "/") + ".py"
    gys = "*gys" if op.multiple_results else "gy"
    return MissingRule(
        f"cannot differentiate {op.name}: it has no backward rule. The gradient reached it along {path}.\n"
        f"Write one in {home}:\n\n"
        f"    @backward(F.{op.name})\n"
        f"    def {op.name}_backward(f, {gys}):\n"
        f'        """the formula"""\n'
        f"        {unpack}\n"
        f"        return ...  # one gradient for each of {inputs}; None where it is zero\n"
    )


def show_registry() -> None:
    """Print every op with the kind of its rule and the file that contains it."""
    rows = [(op.type_name, op.name, rule.kind, rule.module) for op, rule in registry.ops()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)))


def _caller_module() -> str:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None and frame.f_back.f_back is not None
    return str(frame.f_back.f_back.f_globals["__name__"])
