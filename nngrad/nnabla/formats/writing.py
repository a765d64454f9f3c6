"""Write networks in nnabla's format. Functions that nnabla lacks are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...extend import Closing, Function, Op, Variable, functions_of
from .networks import RENAMED, FunctionType, function_types

_TYPES = {kind.function: kind for kind in function_types().values()}
_OTHER_NAMES = {"amax": "max", "amin": "min"}
"""nnabla's function names for ops that nngrad names differently."""
_OF_ONE_RANK = frozenset([name for name in _TYPES if name.endswith("2")]) | {
    "equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor",
}  # fmt: skip
"""Functions whose inputs nnabla broadcasts only if they have the same number of axes."""
_SWITCHES = ("inplace", "with_index", "only_index")
"""nnabla's arguments that no op of nngrad has; they are off unless the file sets them."""
_LAST_AXIS = ("softmax", "log_softmax", "softmax_cross_entropy", "categorical_cross_entropy", "concatenate")
"""Functions that use the last axis by default."""
_ALL_AXES = ("sum", "mean", "prod", "max", "min")
"""Functions that reduce all axes by default."""

Shape = tuple[int, ...]


class CannotBeSaved(ValueError):
    """Something in a graph cannot be expressed in nnabla's format."""


class NetworkWriter:
    """Writes the graph of some outputs into the message of a network.

    Args:
        network: The protobuf message to fill, with its name and batch size set.
        outputs: The outputs by name.
        names: Other Variables by name: inputs and intermediate values.
        parameters: The names of parameters by their Variables.
        open_batch: Whether the file leaves the batch size open: the size of the first axis of values that depend on an
            input, where it equals the batch size.

    Raises:
        CannotBeSaved: nnabla has no equivalent function, or a leaf is neither named nor a parameter.
    """

    def __init__(
        self, network: Any, outputs: Mapping[str, Variable], names: Mapping[str, Variable],
        parameters: Mapping[Variable, str], open_batch: bool,
    ) -> None:  # fmt: skip
        self._network, self._open_batch = network, open_batch
        self._closing = closing = Closing()
        closing.write(functions_of(list(outputs.values())))
        for name, x in {**names, **outputs}.items():
            if not isinstance(x, Variable) or not (closing.has(x) or name in outputs):
                raise CannotBeSaved(f"{name!r} is not a Variable of the network")
        self._names = {closing[x]: name for name, x in {**names, **outputs}.items()}
        self.shapes: dict[str, Shape] = {}
        """Shapes of values by name."""
        self._batched: set[str] = set()
        """Names of values that depend on an input."""
        self._count = 0
        self._declare_leaves(parameters)
        number = 0
        for f, (op, arguments, ins) in zip(closing.functions, closing.steps, strict=True):
            outs = [self._name(~(number + k), op, k) for k in range(len(f.specs))]
            number += len(f.specs)
            self._function(f, op, dict(zip(op.argument_names, arguments, strict=True)),
                           [self._names[i] for i in ins], outs)  # fmt: skip

    def _name(self, number: int, op: Op, k: int) -> str:
        default = f"@{self._network.name}/{op.name}_{~number}_out" + f"_{k}" * bool(k)
        return self._names.setdefault(number, default)

    def _declare_leaves(self, parameters: Mapping[Variable, str]) -> None:
        for number, leaf in enumerate(self._closing.leaves):
            name = parameters.get(leaf)
            if name is None and (number not in self._names or leaf.key_source is not None):
                raise CannotBeSaved(f"a leaf of shape {leaf.shape} is neither a parameter nor among `names`"
                                    if leaf.key_source is None else "nnabla's format cannot hold random functions")
            if name is None:
                self._batched.add(self._names[number])
            self._names[number] = name or self._names[number]
            self._declare(self._names[number], leaf.shape, "Buffer" if name is None else "Parameter")

    def _declare(self, name: str, shape: Shape, kind: str = "Buffer") -> str:
        self.shapes[name] = shape
        message = self._network.variable.add(name=name, type=kind)
        message.shape.dim.extend(self.open(name, shape))
        return name

    def open(self, name: str, shape: Shape) -> Shape:
        """The shape with -1 for the batch size."""
        batch = self._open_batch and name in self._batched and shape[:1] == (self._network.batch_size,)
        return (-1, *shape[1:]) if batch else shape

    def _function(self, f: Function, op: Op, arguments: dict[str, Any], ins: list[str], outs: list[str]) -> None:
        if f.effects:
            raise CannotBeSaved(f"{op.name} updates leaves, such as running statistics with batch_stat=True")
        if self._batched & set(ins):
            self._batched.update(outs)
        shapes = [spec.shape for spec in f.specs]
        special = _SPECIAL.get(op.name)
        kind = _TYPES.get(_OTHER_NAMES.get(op.name, op.name))
        if special is not None:
            # nnabla's files do not record the precision of matrix products.
            others = {name: value for name, value in arguments.items() if name != "matmul_precision"}
            special(self, op, others, ins, outs[0], shapes[0])
        elif kind is None:
            raise CannotBeSaved(f"nnabla has no function {op.name}")
        else:
            if op.name in _OF_ONE_RANK:
                ins = [self._in_rank(x, len(shapes[0])) for x in ins]
            self.emit(kind.type, ins, outs, shapes, self._fields(kind, op, arguments, ins, shapes[0]))

    def emit(
        self, kind: str, ins: Sequence[str], outs: Sequence[str], shapes: Sequence[Shape], fields: Mapping[str, Any]
    ) -> None:
        """Write a function and declare its outputs."""
        self._count += 1
        message = self._network.function.add(name=f"@{self._network.name}/{kind}_{self._count}", type=kind)
        message.input.extend(ins)
        message.output.extend(outs)
        described = function_types()[kind]
        for name, value in fields.items():
            into = getattr(message, f"{described.function}_param")
            if described.fields[name] == "Shape":
                getattr(into, name).dim.extend(value)
            elif described.fields[name].endswith("s"):
                getattr(into, name).extend(value)
            else:
                setattr(into, name, value)
        for name, shape in zip(outs, shapes, strict=True):
            self._declare(name, shape)

    def between(self, kind: str, x: str, shape: Shape, fields: Mapping[str, Any]) -> str:
        """Write an auxiliary function of `x` and return the name of its output."""
        name = f"@{self._network.name}/{kind}_{self._count + 1}_out"
        if x in self._batched:
            self._batched.add(name)
        self.emit(kind, [x], [name], [shape], fields)
        return name

    def _in_rank(self, x: str, rank: int) -> str:
        """`x` reshaped to `rank` axes if it has fewer."""
        whole = (1,) * (rank - len(self.shapes[x])) + self.shapes[x]
        if whole == self.shapes[x]:
            return x
        return self.between("Reshape", x, whole, {"shape": self.open(x, whole)})

    def _fields(
        self, kind: FunctionType, op: Op, arguments: dict[str, Any], ins: list[str], shape: Shape
    ) -> dict[str, Any]:
        """The arguments of an op as the file stores them."""
        names = {field: field if field in arguments else RENAMED.get(field, field) for field in kind.fields}
        for name, default in zip(op.argument_names, op.defaults, strict=True):
            if name not in names.values() and arguments[name] != default:
                raise CannotBeSaved(f"nnabla's {kind.function} has no argument {name}={arguments[name]!r}")
        fields = {}
        for field, name in names.items():
            if name in arguments:
                fields[field] = self._value(kind, field, arguments, arguments[name], ins)
            elif field not in _SWITCHES:
                raise CannotBeSaved(f"nngrad has no equivalent of {field} in nnabla's {kind.function}")
        if kind.type in ("Reshape", "Broadcast"):
            fields["shape"] = self.open(ins[0], shape)
        return fields

    def _value(self, kind: FunctionType, field: str, arguments: dict[str, Any], value: Any, ins: list[str]) -> Any:
        """The value of an argument in the file, with nnabla's explicit default in place of None."""
        rank = len(self.shapes[ins[0]]) if ins else 0
        if field == "axes" and (value is not None or kind.function in _ALL_AXES):
            axes = range(rank) if value is None else (value,) if isinstance(value, int) else value
            return tuple([axis % rank for axis in axes])
        if value is None:
            kernel = arguments.get("kernel", ())
            standard = {"stride": kernel, "pad": (0,) * len(kernel)} if kernel else {}
            if kind.function in _LAST_AXIS:
                standard["axis"] = rank - 1
            if field not in standard:
                raise CannotBeSaved(f"nnabla's {kind.function} has no {field}=None")
            return standard[field]
        return value


def _convolve(
    writer: NetworkWriter, op: Op, arguments: dict[str, Any], ins: list[str], out: str, shape: Shape
) -> None:
    fields = {**arguments, "base_axis": len(shape) - len(arguments["pad"]) - 1}
    writer.emit("Convolution", ins, [out], [shape], fields)


def _batch_matmul(
    writer: NetworkWriter, op: Op, arguments: dict[str, Any], ins: list[str], out: str, shape: Shape
) -> None:
    """nnabla's BatchMatmul needs batch axes; a product of two matrices is its Affine."""
    x, y = [writer.shapes[name] for name in ins]
    if (len(x), len(y)) == (2, 2):
        turned = arguments["transpose_a"], arguments["transpose_b"]
        ins = [writer.between("Transpose", name, writer.shapes[name][::-1], {"axes": (1, 0)}) if turn else name
               for name, turn in zip(ins, turned, strict=True)]  # fmt: skip
        writer.emit("Affine", ins, [out], [shape], {"base_axis": 1})
    elif x[:-2] == y[:-2]:
        writer.emit("BatchMatmul", ins, [out], [shape], arguments)
    else:
        raise CannotBeSaved(f"nnabla's batch_matmul does not broadcast batches, as of shapes {x} and {y}")


def _take_slices(
    writer: NetworkWriter, op: Op, arguments: dict[str, Any], ins: list[str], out: str, shape: Shape
) -> None:
    """A slice, followed by a reshape that drops integer-indexed axes."""
    bounds = [(key, key + 1, 1) if isinstance(key, int) else (key[0], key[0] + key[1] * key[2], key[2])
              for key in arguments["key"]]  # fmt: skip
    old = writer.shapes[ins[0]]
    bounds += [(0, n, 1) for n in old[len(bounds) :]]
    if any([step < 1 for _, _, step in bounds]):
        raise CannotBeSaved(f"nnabla has no slices with negative steps, as here of shape {old}")
    start, stop, step = zip(*bounds, strict=True)
    sliced = tuple([-((first - last) // by) for first, last, by in bounds])
    stop = tuple([min(last, n) for last, n in zip(stop, old, strict=True)])
    whole = next((i for i, n in enumerate(old) if (start[i], stop[i], step[i]) != (0, n, 1)), 0)
    fields = {"start": start[whole:], "stop": stop[whole:], "step": step[whole:]}  # nnabla's apply to the last axes
    if sliced == shape:
        writer.emit("Slice", ins, [out], [shape], fields)
    else:
        part = writer.between("Slice", ins[0], sliced, fields)
        writer.emit("Reshape", [part], [out], [shape], {"shape": writer.open(part, shape)})


_SPECIAL: dict[str, Callable[..., None]] = {
    "convolve": _convolve, "batch_matmul": _batch_matmul, "take_slices": _take_slices,
}  # fmt: skip
"""Writers of ops that do not map to a single nnabla function with the same arguments."""
