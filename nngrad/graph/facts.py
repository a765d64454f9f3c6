"""The declarations of an op: its schema, read from the signature of its forward, and the facts given to its decorator.

Everything else is derived from the facts: forward mode, batching, independence of rows, sums over directions,
selections, and costs for rematerialisation.

Each fact can be verified numerically, and `tests/functions/test_facts.py` does so for every op. Without a fact, the
general method is used, which is right for every op.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .arguments import Ignored, IntsEach, Number, NumbersEach, coercer_of, one_per_input, without_range
from .function import Function, apply
from .leaf import as_variables
from .variable import Variable

if TYPE_CHECKING:
    from .axes import AxisMap, Keys
    from .placement import Processes


Fold = Callable[[tuple[Any, ...], int, int, int], tuple[Any, ...]]
Linearity = Literal[False, True, "each", "together"] | tuple[int, ...]
Fusion = Literal["", "in place", "moving"]
Reduction = Literal["", "add", "mul", "max", "min"]
Precision = Literal["", "low", "high", "inside"]


@dataclass(kw_only=True, eq=False, repr=False)
class Facts:
    """All facts that an op is declared with: keyword arguments of the `op` decorator, and attributes of the op."""

    # ---------------------------------------------------------------- outputs: their shapes, and how inputs give them

    elementwise: bool = False
    """Floating inputs of one shape and dtype give an output of that shape and dtype, and no argument can be wrong, so
    that nothing need be traced to know it. It concerns shapes only: it does not say what an element depends on."""
    broadcasts: bool = False
    """Inputs broadcast against each other; `Grad` sums their gradients back."""
    multiple_results: bool = False
    """`forward` returns a tuple of outputs."""
    shape: Callable[..., tuple[int, ...] | None] | None = None
    """For an op with one output, of the dtype of all inputs if these are floating or it moves their elements:
    `shape(*shapes of inputs, *arguments)` is the output's shape, so that `forward` need not be traced. None, or any
    error, if only `forward` can tell."""
    view: bool = False
    """Output i has the elements of input i in the same order, and no memory of its own."""
    forwards_inputs: bool = False
    """Output i is input i: nothing is computed."""
    reads: int | None = None
    """How many inputs, the first ones, the values of its outputs are computed from; the others determine their shapes,
    when they are computed, or where gradients go. None: all. 0: none, so that `forward()` of an output also computes
    the inputs."""
    predicate: Callable[..., Any] | None = None
    """For an op that gives 1 where a condition holds and 0 elsewhere: a function that gives the condition as bools. A
    compiled graph uses it where a `selects` op takes the result as its condition."""
    selects: bool = False
    """It uses the first input only as a condition: zero or not."""
    fold: Fold | None = None
    """For an op on any number of inputs that can be computed in parts, each taking the previous result as its first
    input: `fold(arguments, start, stop, count)` gives the arguments of the part with the inputs from `start` to `stop`
    of `count`."""
    joined_by: Callable[[], Any] | None = None
    """For an op on any number of inputs that joins them: returns the op that joins, with the same arguments, this op's
    results on consecutive stretches of them."""
    slice_keys: Keys | None = None
    """For an op whose outputs are parts of its input: the key of each part (`nngrad.graph.axes`)."""
    update_keys: Keys | None = None
    """For an op that places its inputs unchanged in an output that is zero elsewhere: the key of each place."""

    # ---------------------------------------------------------------- derivatives

    linear: Linearity = False
    """True: linear in the first input with the others held fixed; "each": linear so in each floating input;
    "together": jointly linear in all, as a sum is; a tuple of indexes: jointly linear in those, with the others
    fixed."""
    offset: str = ""
    """The argument that is added to the linear part: `linear` holds only without it."""
    weights: str = ""
    """The argument with the factors of the inputs of a weighted sum."""
    powers: Callable[[Function], tuple[int, ...]] | None = None
    """For a product: the integer power of each input."""
    diagonal: bool = False
    """Each element of the output depends only on elements of the inputs at the same place, after broadcasting: the
    Jacobian with respect to each input is diagonal."""
    unbounded: bool = False
    """For a diagonal op: its derivative may be infinite or NaN at finite inputs, or a product's is if another factor
    is."""
    constant: bool = False
    """Derivatives of every order treat its outputs as constants, although they are not."""

    # ---------------------------------------------------------------- axes

    axes: AxisMap | None = None
    """How axes go through an op that is not diagonal (`nngrad.graph.axes`); None if every element of the output may
    depend on every element of the inputs."""

    adds_rows: bool = False
    """Its output is the sum of its outputs for each row, the rows of an input being along its first axis."""

    # ---------------------------------------------------------------- compilation, execution and cost

    cost: Callable[[Function], int] | None = None
    """For a heavy op, whose arithmetic per element grows with the arrays: the approximate number of additions and
    multiplications of a Function. None: the op is light, with a few per element."""
    fuses: Fusion = ""
    """How a compiler can fuse it into the loop of a consumer: "in place", each element from those at its place (implied
    for diagonal ops); "moving", elements come from other places, or from none."""
    reduction: Reduction = ""
    """The operation by which it reduces many elements to one, in one pass."""
    precision: Precision = ""
    """Its dtype where `nn.precision` has a 16-bit dtype in force. "low": compute in that, as products of matrices do.
    "high": compute and return float32, as sums, losses and logarithms do. "inside": compute in float32, and return the
    input's dtype. "": compute in the input's dtype."""
    numbers: tuple[str, ...] = ()
    """Static arguments, each a number or a tuple of numbers, that `forward` also takes as zero-dimensional arrays if
    its inputs are floating: graphs that differ only in them share an executable."""
    own_way: Callable[[Any], bool] | None = None
    """Whether an executable must know one of `numbers`, because `forward` treats it as a special case."""
    by_index: Callable[..., Any] | None = None
    """For an op with a `key`, and perhaps the `shape` of its result: the same forward, where indices in the key may
    also be zero-dimensional arrays. Graphs that differ only in them share an executable if they are few."""
    of_variables: Callable[..., Variable] | None = None
    """The function composed of others, of its inputs and static arguments in order, for callers that give Variables for
    static arguments annotated as `Scalar`."""
    exchanges: Callable[[tuple[Any, ...]], Processes | None] | None = None
    """For an op whose forward exchanges arrays with other processes: the group, from its static arguments; None if they
    name only one process (`nngrad.graph.process`)."""
    lockstep: bool = False
    """For an op with bodies: every process runs them equally often, whatever its arrays hold."""

    def __post_init__(self) -> None:
        self.heavy = self.cost is not None
        """Whether it does much arithmetic per element: products of matrices, convolutions, and perhaps user code
        (`Op.is_heavy`)."""
        self.fuses = self.fuses or ("in place" if self.diagonal else "")
        self.view = self.view or self.forwards_inputs

    def linear_in(self, index: int) -> bool:
        """True if it is linear in one input with the others held fixed."""
        return not self.offset and (self.linear == "each" or (self.linear is True and index == 0))

    def fixed(self, count: int) -> tuple[int, ...] | None:
        """The indices, of `count` inputs, that are held fixed when it is jointly linear in the others, apart from
        its offset; None if it is not."""
        if self.linear == "together":
            return ()
        return tuple([i for i in range(count) if i not in self.linear]) if isinstance(self.linear, tuple) else None


def unknown(f: Function) -> int:
    """The cost of an op about which nothing is known; its forward then tells whether it is heavy (`Op.is_heavy`)."""
    return 32 * max([s.size for s in f.specs] + [x.size for x in f.inputs])


# ---------------------------------------------------------------- signatures


class Schema:
    """A function's inputs and static arguments, from its signature, and code that checks them.

    The `caller` is compiled from a few lines of source, as in `dataclasses`:
    binding `*args, **kwargs` to a signature on each call would cost more than all the rest of
    building a Function.
    """

    def __init__(self, name: str, signature: inspect.Signature, static: bool = True) -> None:
        self.name = name
        self._static = static
        self.inputs: list[str] = []
        self.optional: list[str] = []
        self.arguments: list[str] = []
        self.defaults: list[Any] = []
        self.values: list[str] = []
        self.checks: list[tuple[Callable[..., Any], bool]] = []
        self.variadic = False
        self.has_floats = False
        self._each: list[str] = []
        self._header: list[str] = []
        self._scope: dict[str, Any] = {"apply": apply, "Variable": Variable, "variables": as_variables}
        for p in signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                self._add_input(p)
            else:
                self._add_argument(p)

    def _add_input(self, p: inspect.Parameter) -> None:
        self.inputs.append(p.name)
        if p.kind is p.VAR_POSITIONAL:
            self.variadic = True
            self._header.append(f"*{p.name}")
        elif p.default is p.empty:
            self._header.append(p.name)
        else:
            self.optional.append(p.name)
            self._header.append(f"{p.name}=None")

    def _add_argument(self, p: inspect.Parameter) -> None:
        name, check = p.name, f"check_{p.name}({p.name})"
        if p.kind is p.KEYWORD_ONLY and not self.variadic and "*" not in self._header:
            self._header.append("*")
        if p.default is p.empty:
            self._header.append(name)
        else:
            self._scope[f"default_{name}"] = p.default
            self._header.append(f"{name}=default_{name}")
            check = f"{name} if {name} is default_{name} else {check}"
        if p.annotation is not Ignored:
            self.arguments.append(name)
            self.defaults.append(p.default)
            self.has_floats |= without_range(p.annotation) in (float, float | None, Number)
            is_each = p.annotation in (IntsEach, NumbersEach)
            checks: Callable[..., Any] = coercer_of(p.annotation, self.name, name, self._static)
            if is_each:
                self._each.append(name)
                checks = one_per_input(checks, self.name, name)
            self.values.append(name if is_each else check)
            self.checks.append((checks, is_each))
            self._scope[f"check_{name}"] = checks

    @property
    def conversions(self) -> list[str]:
        """Source lines that convert the inputs to Variables."""
        if self.variadic:
            (name,) = self.inputs
            names = f"[f'{name}[{{i}}]' for i in range(len({name}))]"
            return [
                f"if not all([x.__class__ is Variable for x in {name}]):"
                f" {name} = variables({name}, {names}, {self.name!r})",
                f"if not {name}: raise TypeError('{self.name}: give at least one Variable as {name}')",
                *[f"{argument} = check_{argument}({argument}, len({name}))" for argument in self._each],
            ]
        if not self.inputs:
            return []
        conditions = [f"{n}.__class__ is not Variable" for n in self.inputs if n not in self.optional]
        conditions += [f"({n}.__class__ is not Variable and {n} is not None)" for n in self.optional]
        listed = f"{', '.join(self.inputs)},"
        required = len(self.inputs) - len(self.optional)
        call = f"variables(({listed}), {self.inputs}, {self.name!r}, {required})"
        return [f"if {' or '.join(conditions)}: {listed} = {call}"]

    def caller(self, lines: Callable[[], list[str]], keep: Callable[[Callable[..., Any]], None],
               **names: Any) -> Callable[..., Any]:
        """A function with the signature's header and the body `lines()`, which may use `names`. Its first call compiles
        it, and has it kept instead of what is returned here: a program calls few of the functions that it imports."""

        def first_call(*args: Any, **kwargs: Any) -> Any:
            scope = self._scope | names
            exec("\n    ".join([f"def {self.name}({', '.join(self._header)}):", *lines()]), scope)
            keep(scope[self.name])
            return scope[self.name](*args, **kwargs)

        return first_call
