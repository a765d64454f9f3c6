"""Variable: an array in a computation graph."""

from __future__ import annotations

import functools
import math
import operator
import sys
import weakref
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from .engine import KeySource, Operators, engine
from .messages import no_attribute, no_such_argument
from .ndarray import NOT_KEPT, NdArray, checked_spec
from .spec import FLOAT32, DType, Shape, Spec
from .traverse import needs_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .engine import Hook
    from .function import Function
    from .value import OutputGroup, Thunk


class Variable(Operators):
    """An array in a computation graph: a leaf that holds data, or an output of a Function.

    Args:
        shape: Shape of the array.
        need_grad: Whether `backward()` computes a gradient for it (a leaf of a floating dtype).
        name: A name for messages and printing.
        dtype: Dtype of the array; float32 by default.

    Raises:
        TypeError: `shape` is not a tuple of ints, `need_grad` is not a bool, or it is True for a non-floating dtype.
        ValueError: A size is negative, or the array is too large for any memory.

    Applying functions (`nngrad.functions`) and operators to Variables builds the graph; `forward()`
    or reading `.d` computes it. Operators broadcast as NumPy does.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_data",
        "_grad",
        "_group",
        "_need_grad",
        "_persistent",
        "derived_by",
        "index",
        "key_source",
        "name",
        "parent",
        "spec",
    )
    __array_priority__ = 1000.0

    spec: Spec
    """Shape and dtype."""
    parent: Function | None
    """The Function that computes it; None for a leaf."""
    index: int
    """Its index among the outputs of its parent."""
    name: str
    _persistent: bool
    _data: NdArray | None
    _grad: NdArray | None
    _need_grad: bool | None
    derived_by: Any
    """How `nn.grad` or a Laplacian made it (a `ResultDerivation`); None for other Variables."""
    _group: OutputGroup | None
    key_source: KeySource | None
    """What draws its value anew at each `forward()`, if it is the key of a random function; else None."""
    _at: Any
    """The snapshot of the forward from which an output's data was computed; another object if that was a read."""

    def __init__(
        self, shape: Shape | list[int] | int = (), need_grad: bool = False, name: str = "", dtype: object = FLOAT32,
        **misspelt: Never,
    ) -> None:
        if misspelt:
            raise no_such_argument("Variable", misspelt, ("shape", "need_grad", "name", "dtype")) or TypeError
        if not isinstance(need_grad, bool | np.bool_ | None):
            hint = f"; give the shape as a tuple: nn.Variable(({shape!r}, {need_grad!r}))" * isinstance(shape, int)
            raise TypeError(f"need_grad: expected True or False, got {need_grad!r}{hint}")
        _fill(self, checked_spec(shape, dtype))
        self.need_grad = bool(need_grad)
        self.name = name

    @staticmethod
    def from_numpy_array(
        data: object, grad: object = None, need_grad: bool = False, dtype: object = None, name: str = ""
    ) -> Variable:
        """A leaf with a copy of `data`, and of `grad` if it is given.

        NumPy and JAX arrays keep their dtype, but float64 becomes float32 in a context of type 'float'
        (`nn.get_extension_context`); Python floats and lists of them become float32. `dtype` overrides this.
        """
        x = leaf_of(NdArray.from_numpy_array(data, dtype))
        if need_grad is not False:
            x.need_grad = need_grad
        if grad is not None:
            x.g = grad
        x.name = name
        return x

    # ---------------------------------------------------------------- shape and dtype

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """Dtype of the array."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    # ---------------------------------------------------------------- place in the graph

    @property
    def rank(self) -> int:
        """Length of the longest path from a leaf; 0 for a leaf."""
        return 0 if self.parent is None else self.parent.rank + 1

    @property
    def is_leaf(self) -> bool:
        """True if no function computes it."""
        return self.parent is None

    @property
    def need_grad(self) -> bool:
        """True if gradients reach it: for a leaf as set, else if some leaf above needs one.

        Setting it to False on an output of a function stops gradients there.
        """
        return needs_gradient(self)

    @need_grad.setter
    def need_grad(self, value: bool | None) -> None:
        if value is not None and not isinstance(value, bool | np.bool_):
            raise TypeError(f"need_grad: expected True or False, got {value!r}")
        if value and not self.spec.differentiable:
            raise TypeError(f"need_grad: the Variable must have a floating dtype, got {self.dtype.name}")
        self._need_grad = None if value is None and self.parent is not None else bool(value)
        self._unsettle()

    need_grad_set: Any = property(
        operator.attrgetter("_need_grad"),
        doc="`need_grad` as it was set; None if it never was, for an output of a function, which then follows its "
            "inputs.",
    )

    @property
    def persistent(self) -> bool:
        """Whether `forward()` of a graph keeps this Variable's value in addition to the outputs', and `backward()` its
        gradient."""
        return self._persistent

    @persistent.setter
    def persistent(self, value: bool) -> None:
        self._persistent = value
        self._unsettle()

    def _unsettle(self) -> None:
        if self.parent is not None:
            self.parent.settled = False

    def get_unlinked_variable(self, need_grad: bool | None = None) -> Variable:
        """A leaf that shares this Variable's data and grad cells, without its history."""
        x = leaf_of(self.data, self.name)
        x._grad = self.grad
        x.need_grad = self.need_grad if need_grad is None else need_grad
        return x

    def cut_off(self) -> None:
        """Turn an output into a leaf with the value in its cell. Its function makes another output in its place if one
        is needed; functions that take the Variable keep their ranks, and how they were run."""
        if self.parent is not None:
            self._need_grad = self.need_grad
            self._grad = None if self._grad is None else self.grad
            self.parent.replace_output(self.index, None)
            self.parent = self._at = self._group = self.derived_by = None

    def take_place_of(self, other: Variable) -> None:
        """Become what `other`, of the same shape and dtype, is: the output of its function, with its data and gradient.
        `other` becomes a leaf that shares both."""
        f, at, need_grad = other.parent, other._at, other._need_grad
        self.cut_off()
        other.cut_off()
        self.parent, self.index, self._at, self._need_grad = f, other.index, at, need_grad
        self._data, self._grad, self.key_source = other.cell, other.grad, other.key_source
        if f is not None:
            f.replace_output(self.index, self)

    def apply(self, **attributes: Any) -> Variable:
        """Set several attributes at once and return the Variable: `x.apply(need_grad=True, d=1.0)`."""
        for name, value in attributes.items():
            if not hasattr(type(self), name):
                raise AttributeError(f"apply: a Variable has no attribute {name!r}")
            setattr(self, name, value)
        return self

    # ---------------------------------------------------------------- data and gradient

    @property
    def data(self) -> NdArray:
        """The cell of its value. Reading this property computes an output that was never computed."""
        if self.parent is not None and not self.is_computed:
            engine.evaluate(self)
        return self.cell

    @data.setter
    def data(self, cell: NdArray) -> None:
        self._data = self._checked_cell(cell, "data")
        self._unsettle()

    @property
    def is_computed(self) -> bool:
        """True if an output's cell holds the value of the last `forward()`, possibly deferred."""
        snapshot = None if self.parent is None else self.parent.snapshot
        return not self.cell.is_zero if snapshot is None else snapshot is self._at

    @property
    def cell(self) -> NdArray:
        """The cell of its value as it is, without computing anything."""
        cell = self._data
        if cell is None:
            cell = self._data = NdArray.of_spec(self.spec)
            self._unsettle()
        return cell

    @property
    def grad(self) -> NdArray:
        """The cell of its gradient, into which `backward()` accumulates for a leaf; zeros until then.

        An intermediate Variable keeps the gradient of a `backward()` only with
        `retain_grad=True`, or if its `persistent` is True. Reading one that was not kept is a RuntimeError.
        """
        cell = self._grad
        if cell is None or cell is NOT_KEPT:
            new = NdArray.of_spec(self.spec)
            if cell is not None:
                new.give_up()
            cell = self._grad = new
            self._unsettle()
        return cell

    @grad.setter
    def grad(self, cell: NdArray) -> None:
        self._grad = self._checked_cell(cell, "grad")
        self._unsettle()

    @property
    def grad_var(self) -> Variable | None:
        """The gradient as a Variable of its own graph, if `nn.grad` (`set_grad`, `retain_grad`) or a `backward` with
        `enable_double_backprop` has kept one; otherwise None, also after `.g` was set or zeroed, or another backward
        added to it.

        Assigning a Variable keeps it, and `.g` is its value, computed when it is read; assigning None is `cleargrad()`.
        """
        return None if self._grad is None or self._grad.is_zero else self._grad.variable

    @grad_var.setter
    def grad_var(self, gradient: Variable | None) -> None:
        if gradient is None:
            self.cleargrad()
            return
        if not isinstance(gradient, Variable):
            kind = type(gradient).__name__
            raise TypeError(f"grad_var: expected a Variable or None, got {kind}; set arrays through .g")
        if gradient.spec is not self.spec:
            raise ValueError(f"grad_var: the gradient must be {self.spec}, like the Variable, got {gradient.spec}")
        cell = self.grad
        cell.variable = gradient
        if gradient.parent is not None or gradient.cell is not cell:
            cell.defer(functools.partial(_fill_from, gradient, weakref.ref(cell)))  # the cell holds it

    def cleargrad(self) -> None:
        """Reset the gradient to zeros, and forget its Variable."""
        if self._grad is not None:
            self.grad.zero()

    def _checked_cell(self, cell: NdArray, name: str) -> NdArray:
        if not isinstance(cell, NdArray):
            raise TypeError(f"{name}: expected an NdArray, got {type(cell).__name__}; set values through .d or .g")
        if cell.spec is not self.spec:
            raise ValueError(f"{name}: the cell must be {self.spec}, like the Variable, got {cell.spec}")
        return cell

    @property
    def d(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array; assigning replaces it, and writing to the array changes it.

        A value written to an output lasts until the next `forward()` that passes it. Nothing else is computed from it,
        except, under `nn.auto_forward()`, functions that are applied from then on.
        """
        return self.cell.data if self.parent is None else self.data.data

    @d.setter
    def d(self, value: object) -> None:
        self.cell.set(value.data if isinstance(value, Variable) else value, self.name or "value")
        if self.parent is not None:
            self._at = self.parent.snapshot

    @property
    def g(self) -> np.ndarray[Any, Any]:
        """The gradient as a NumPy array; assigning replaces it, and writing to the array changes it."""
        cell = self._grad  # or a stand-in, which raises an error when it is read
        return self.grad.data if cell is None else cell.data

    @g.setter
    def g(self, value: object) -> None:
        self.grad.set(value, self.name or "value")

    # ---------------------------------------------------------------- running

    def forward(
        self, clear_buffer: bool = False, clear_no_need_grad: bool = False, function_pre_hook: Hook = None,
        function_post_hook: Hook = None, **misspelt: Never,
    ) -> None:
        """Compute the graph up to this Variable from the leaves' present values.

        The leaves' arrays are captured now; the computation runs when one of its values is read, or together with
        `backward()`. `clear_buffer` and `clear_no_need_grad` are accepted for nnabla's sake: XLA reuses its buffers.

        Args:
            function_pre_hook: Called with each Function in rank order before it runs; with a hook the graph runs op by
                op, at once.
            function_post_hook: The same, after it has run.
        """
        if misspelt:
            known = "clear_buffer", "clear_no_need_grad", "function_pre_hook", "function_post_hook"
            raise no_such_argument("forward", misspelt, known) or TypeError
        engine.forward([self], function_pre_hook, function_post_hook)

    def backward(
        self, grad: Any = 1, clear_buffer: bool = False, communicator_callbacks: Any = None,
        function_pre_hook: Hook = None, function_post_hook: Hook = None, *, retain_grad: bool = False,
        enable_double_backprop: bool = False, loss_scale: float | None = None, recompute: Any = None, **misspelt: Never,
    ) -> None:
        """Add the gradient of this Variable to `.grad` of every leaf with `need_grad`.

        Args:
            grad: The incoming gradient: a scalar, an array, an NdArray, a Variable, or None for the content of its own
                `.grad`.
            clear_buffer: Accepted for nnabla's sake.
            communicator_callbacks: Called once the gradients are computed: the result of a communicator's
                `all_reduce_callback`, or a list of such.
            function_pre_hook: That of `forward`, called for the functions of the gradient.
            function_post_hook: The same.
            retain_grad: Also keep the gradients of intermediate Variables, in their `.grad`.
            enable_double_backprop: Also keep those of the leaves as Variables, in `.grad_var`.
            loss_scale: A factor for the gradient at this Variable.
            recompute: Which forward values to recompute instead of keeping them, as in `nn.grad`.
        """
        if misspelt:
            known = (
                "grad", "clear_buffer", "communicator_callbacks", "function_pre_hook", "function_post_hook",
                "retain_grad", "enable_double_backprop", "loss_scale", "recompute",
            )  # fmt: skip
            raise no_such_argument("backward", misspelt, known) or TypeError
        engine.backward(
            self, grad, function_pre_hook, function_post_hook, retain_grad, enable_double_backprop, loss_scale,
            recompute, communicator_callbacks,
        )

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the value, as pandas and matplotlib ask for it."""
        return np.array(self.data.view)

    # ---------------------------------------------------------------- Python protocols

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = np.array(self.data.view, dtype=dtype, copy=copy)
        # NumPy names a dtype when a method of an array converts its argument, and when its own functions do.
        return value if dtype is None or value.dtype.hasobject else value.view(_ForNumPy)

    def __jax_array__(self) -> Any:
        # JAX's operators ask for this too. An array made here would silently end the graph, so they get an object that
        # is not an array, and leave `array * variable` to the Variable.
        if sys._getframe(1).f_code.co_name.startswith(_JAX_OPERATORS):
            return self
        return self.data.array

    def __format__(self, form: str) -> str:
        """Format the number of a one-element Variable; without a `form`, as it is printed."""
        if form and self.size != 1:
            raise TypeError(f"{form!r} formats one number, not a Variable of shape {self.shape}; format its elements")
        return format(self.data.view.item(), form) if form else str(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a Variable without axes")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"the truth value of a Variable of shape {self.shape} is ambiguous")
        return bool(self.data.view.reshape(()))

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __index__(self) -> int:
        return self.data.view.__index__()

    def _number(self) -> np.ndarray[Any, Any]:
        view = self.data.view
        return view.reshape(()) if self.size == 1 else view

    def __iter__(self) -> Iterator[Variable]:
        return iter([self[i] for i in range(len(self))])

    __hash__ = object.__hash__

    # Type checkers report this themselves. In Python 3.11, reading any slot of a class with this method takes six times
    # as long, so there Python's own message has to do.
    if not TYPE_CHECKING and sys.version_info >= (3, 12):

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # a query for a protocol
                raise AttributeError(f"a Variable has no attribute {name!r}")
            known = [attribute for attribute in dir(type(self)) if not attribute.startswith("_")]
            raise no_attribute(f"a Variable has no attribute {name!r}", name, known, module="nngrad.Variable")

    def __reduce__(self) -> tuple[Any, ...]:
        if self.parent is not None:
            raise TypeError(
                f"an output of {self.parent.op.name} cannot be pickled or copied without its graph; take its array, "
                ".d, or make a leaf of it, get_unlinked_variable()"
            )
        return _leaf_again, (self.cell, self._grad, self._need_grad, self.name, self.persistent)


def cells_of(variables: Iterable[Variable]) -> list[NdArray]:
    """The cells of their values as they are."""
    return [x.cell if (cell := x._data) is None else cell for x in variables]


def grads_of(variables: Iterable[Variable]) -> list[NdArray]:
    """The cells of their gradients."""
    return [x.grad if (cell := x._grad) is None or cell is NOT_KEPT else cell for x in variables]


def _fill_from(variable: Variable, holder: Callable[[], NdArray | None], thunk: Thunk) -> None:
    """Fill in the value of a Variable for another cell."""
    if variable.parent is not None and (variable.cell is holder() or not variable.is_computed):
        engine.evaluate(variable)
    thunk.fill(variable.cell.raw())


class _ForNumPy(np.ndarray[Any, Any]):
    """The value of a Variable where NumPy asks for a dtype.

    `np.asarray`, `np.array` and assignments to arrays take the elements. `array.dot(variable)`, which asks no
    `__array_function__`, makes its result of the operand's class, and is thereby told from these.
    """

    __array_priority__ = math.inf

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(source, _ForNumPy) and self.base is None:
            raise TypeError(
                "array.dot: a Variable is not an array, and the result would have no gradient. Use `array @ variable`, "
                "or the value, variable.d, which has no gradient"
            )


_JAX_OPERATORS = ("_operator_", "deferring_binary_op")
"""The beginnings of the names of functions that define a JAX array's operators, in new and old versions of JAX."""


def _fill(x: Variable, spec: Spec) -> None:
    x.spec = spec
    x.parent = x._data = x._grad = x._need_grad = x.derived_by = x._group = x.key_source = x._at = None
    x.index, x.name, x._persistent = 0, "", False


new_variable = Variable.__new__
"""Makes a Variable without filling it."""


def leaf_of(cell: NdArray, name: str = "") -> Variable:
    """A leaf whose data is `cell`, without need_grad."""
    x = new_variable(Variable)
    _fill(x, cell.spec)
    x._data = cell
    x._need_grad = False
    x.name = name
    return x


def _leaf_again(cell: NdArray, grad: NdArray | None, need_grad: bool, name: str, persistent: bool) -> Variable:
    """Restore a pickled leaf."""
    x = leaf_of(cell, name)
    x._grad, x._need_grad, x._persistent = grad, need_grad, persistent
    return x
