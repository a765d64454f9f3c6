"""What is declared of an op at its decorator, and all else is derived from: forward mode, batching, independence of
rows, sums over directions, selections, and what recomputation weighs.

Numbers can show what is declared, and `tests/test_facts.py` checks it for every op. What is not declared is not relied
on; then the general way is taken, which is right for every op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .axes import AxisMap
    from .exchange import Processes
    from .function import Function
    from .layouts import Moved
    from .parts import Keys
    from .spec import Spec
    from .variable import Variable

Fold = Callable[[tuple[Any, ...], int, int, int], tuple[Any, ...]]
Linearity = Literal[False, True, "each", "together"] | tuple[int, ...]
Fusion = Literal["", "in place", "moving"]
Reduction = Literal["", "add", "mul", "max", "min"]
Precision = Literal["", "low", "high", "inside"]


@dataclass(kw_only=True, eq=False, repr=False)
class ResultFacts:
    """What its outputs are: their shapes, and how they come from the inputs."""

    elementwise: bool = False
    """Floating inputs of one shape and dtype give an output of just that shape and dtype, and no argument can be wrong,
    so that nothing need be traced to know it. A fact about shapes: it says nothing of what an element depends on."""
    broadcasts: bool = False
    """Inputs broadcast against each other; `Grad` sums their gradients back."""
    multiple_results: bool = False
    """`forward` returns a tuple of outputs."""
    shape: Callable[..., tuple[int, ...] | None] | None = None
    """For an op that gives one array, in the dtype that all inputs have: `shape(*shapes of inputs, *arguments)` is that
    of the array, so that `forward` need not be traced to know it. None, or any error, where only `forward` can tell."""
    view: bool = False
    """Output i has the elements of input i in their order, and no memory of its own."""
    forwards_inputs: bool = False
    """Output i is input i: nothing is computed."""
    reads: int | None = None
    """Its outputs are computed from so many of the inputs, the first ones; the others say when, or whose gradient it
    carries. None: from all. 0: from none, and so `forward()` of an output computes the inputs too."""
    predicate: Callable[..., Any] | None = None
    """For an op that gives 1 where something holds and 0 elsewhere, a function that gives the same as bools; a compiled
    graph uses it where a `selects` op takes the result as its condition."""
    selects: bool = False
    """Of the first input it matters only where that is 0."""
    fold: Fold | None = None
    """For an op on any number of inputs that can be computed in parts, each of which takes the result of the one before
    as its first input, `fold(arguments, start, stop, count)`: the arguments of the part that has the inputs from
    `start` to `stop` of `count`."""
    joined_by: Callable[[], Any] | None = None
    """For an op on any number of inputs that joins them: gives the op that joins, with the same arguments, what this
    one gives of stretches of them."""
    slice_keys: Keys | None = None
    """For an op whose outputs are parts of its input: the key of each (`nngrad.graph.parts`)."""
    update_keys: Keys | None = None
    """For an op that puts its inputs, as they are, at places of its output, which has zeros elsewhere: the key of
    each."""


@dataclass(kw_only=True, eq=False, repr=False)
class DerivativeFacts:
    """What its derivatives follow from."""

    linear: Linearity = False
    """True: linear in the first input while the others are held fixed; "each": so in each floating input; "together":
    in all of them at once, as a sum is; a tuple of indexes: in those at once, with the others fixed."""
    offset: str = ""
    """The argument that is added to what is linear: only without it is the op what `linear` says."""
    weights: str = ""
    """The argument with the numbers that the inputs of a sum are multiplied by, one for each."""
    powers: Callable[[Function], tuple[int, ...]] | None = None
    """For a product: the whole power in which each input is a factor."""
    diagonal: bool = False
    """Each element of the output depends on the elements of the inputs (that it reads) at its own place alone, with the
    inputs broadcast together: then the Jacobian with respect to each input is diagonal."""
    unbounded: bool = False
    """For a diagonal op: its derivative may be infinite or NaN, or that of a product is where another factor is."""
    windows: Callable[[Function], Variable | None] | None = None
    """For a product of windows of its first input with the second, a weight whose first axis is axis 1 of the output:
    the windows, (batch, elements of the weight for a channel of the output, *places). None where it is several."""
    constant: bool = False
    """Derivatives of every order take its outputs for constants, although they are not."""

    def linear_in(self, index: int) -> bool:
        """Whether it is linear in one input while the others are held fixed."""
        return not self.offset and (self.linear == "each" or (self.linear is True and index == 0))

    def fixed(self, count: int) -> tuple[int, ...] | None:
        """Which of `count` inputs are held fixed where it is linear in several at once, but for its offset; None where
        it is not."""
        if self.linear == "together":
            return ()
        return tuple([i for i in range(count) if i not in self.linear]) if isinstance(self.linear, tuple) else None


@dataclass(kw_only=True, eq=False, repr=False)
class AxisFacts:
    """Where its axes go."""

    axes: AxisMap | None = None
    """How axes go through an op that is not diagonal (`nngrad.graph.axes`); None where every element of the output may
    depend on every element of the inputs."""
    channels_last: Moved | None = None
    """For an op that is not diagonal: the arguments with which it gives its output with the channels last where it gets
    its inputs so (`nngrad.graph.layouts`)."""


@dataclass(kw_only=True, eq=False, repr=False)
class RunFacts:
    """How it is compiled and run, and what that costs."""

    cost: Callable[[Function], int] | None = None
    """For a heavy op, which does more arithmetic for each element the larger the arrays are: about how many additions
    and multiplications a Function of it takes. None: the op is light, and takes a few for each element."""
    fuses: Fusion = ""
    """How a compiler can compute it within the loop of what reads its result: "in place", each element from those at
    its place (diagonal ops do so by themselves); "moving", elements come from other places, or from none."""
    reduction: Reduction = ""
    """The operation by which it makes one element of many, in one pass."""
    taken_for_light: bool = False
    """XLA takes it for as light as a product, and computes it anew in each loop that reads it; it takes many times as
    long."""
    precision: Precision = ""
    """What it wants where `nn.precision` has a dtype of 16 bits in force. "low": to compute in that, as products of
    matrices do. "high": to compute in float32, and to give that, as sums, losses and logarithms do. "inside": to
    compute in float32, and to give the dtype that came in. Else it computes in the dtype that comes in."""
    numbers: tuple[str, ...] = ()
    """Static arguments, each a number or a tuple of numbers, that `forward` takes as arrays without axes as well, where
    its inputs are floating: graphs that differ in them alone share an executable."""
    own_way: Callable[[Any], bool] | None = None
    """Says of which of `numbers` an executable is to know, since `forward` computes with them in a way of their own."""
    from_variables: Callable[[Function, tuple[Variable, ...], tuple[Any, ...]], Variable] | None = None
    """What computes the same where Variables without axes stand for some of `numbers`: `from_variables(f, inputs,
    arguments)`. So what is differentiated need not be emitted anew for each number."""
    exchanges: Callable[[tuple[Any, ...]], Processes | None] | None = None
    """For an op whose forward exchanges arrays with other processes: among which, from its static arguments; None where
    these name one process alone (`nngrad.graph.exchange`)."""
    lockstep: bool = False
    """For an op with bodies: every process that runs it runs them equally often, whatever its arrays are."""
    on_cpu: Callable[[Sequence[Spec], Mapping[str, Any]], Callable[..., Any] | None] | None = None
    """For an op of which XLA's compiler for CPUs makes little: `on_cpu(specs, arguments)` gives, for inputs like that
    and arguments by name, what runs there in place of `forward`; None where that serves as well. Results are the same
    but for rounding."""

    @property
    def heavy(self) -> bool:
        """Whether it does much arithmetic for each element: products of matrices, convolutions, and perhaps what users
        wrote (`Op.is_heavy`)."""
        return self.cost is not None


@dataclass(kw_only=True, eq=False, repr=False)
class Facts(ResultFacts, DerivativeFacts, AxisFacts, RunFacts):
    """The facts that an op is declared with; all are keyword arguments of the `op` decorator, and attributes of the op.
    """

    def __post_init__(self) -> None:
        self.fuses = self.fuses or ("in place" if self.diagonal else "")
        self.view = self.view or self.forwards_inputs


def unknown(f: Function) -> int:
    """The cost of an op of which nothing is known: what it does is seen from its forward (`Op.is_heavy`)."""
    return 32 * max([s.size for s in f.specs] + [x.size for x in f.inputs])
