"""Op: a named function on arrays, made callable on Variables by the `op` decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, overload

import jax
import numpy as np

from .arguments import NegativeZero, text_of_kind
from .facts import Facts, Schema, unknown
from .jaxpr import does_much
from .leaf import Widened, as_operands, as_variables, marked_if_wide, warn_where_widened
from .messages import no_such_argument
from .placement import as_one_of, groups_of
from .process import interrupt_safe
from .signatures import REFUSALS, Completed, raise_by_name
from .spec import Spec, spec_of, x64_if
from .thresholds import MOST_ANSWERS
from .variable import Variable

if TYPE_CHECKING:  # with defaults, so that `Op` alone is an op of any signature
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", covariant=True, default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

Forward: TypeAlias = Callable[..., Any]
T = TypeVar("T")
Two: TypeAlias = tuple[T, T]
Three: TypeAlias = tuple[T, T, T]
Array: TypeAlias = Any
"""An input of an op: its forward gets an array; callers pass a Variable, an array or a number."""


_spec_of_variable = attrgetter("spec")

NOT_APPLICABLE = (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError)
"""The exceptions by which a forward reports that it cannot be applied."""

_MOST_BYTES = 2**63 - 1
"""The largest number of bytes in an array that can be counted."""


class Op(Facts, Generic[P, R]):
    """A named function on arrays, differentiable or not, from whose applications graphs are made.

    Made by the `op` decorator. Calling it on Variables, arrays and numbers adds a Function to the
    graph and returns its output, or a tuple if `forward` returns one. Its facts are attributes that it
    inherits from `Facts`. For type checkers it has the parameters `P` of its forward, and returns `R`: a
    Variable for each array.
    """

    __doc__ = Completed(__doc__)
    name: str
    """Name of the function in F."""
    type_name: str
    """nnabla's name for the type of function."""
    forward: Forward
    """The function on arrays, `forward(*arrays, **arguments)`."""
    is_own: bool
    """Whether it is nngrad's own, and not a user's."""
    rules: dict[Any, Any]
    """Its backward rules, entered by `backward_registry`: at most one per registry."""
    tables: dict[Any, Any] | None = None
    """For an op that lives only as long as a user's class: entries of tables, kept here so that they do not keep the op
    alive."""
    stands_for: Op | None = None
    """The op that this one replaces, with another forward, if a pass has put it in."""
    input_names: tuple[str, ...]
    argument_names: tuple[str, ...]
    defaults: tuple[Any, ...]
    """Default of each argument, or `inspect.Parameter.empty`."""
    variadic: bool
    """Whether it takes any number of inputs."""
    least_inputs: int
    """The minimum number of inputs."""

    def __init__(self, forward: Forward, *, type_name: str = "", **facts: Any) -> None:
        super().__init__(**facts)
        self.forward = forward
        self.name = self.__name__ = forward.__name__
        self.type_name = type_name or "".join(part.capitalize() for part in self.name.split("_"))
        self.module = self.__module__ = forward.__module__
        self.is_own = self.module.startswith("nngrad.")
        self.rules = {}
        self._specs: dict[tuple[Any, ...], tuple[Spec, ...]] = {}
        self._heavy: dict[tuple[Any, ...], bool] = {}
        signature = inspect.signature(forward, eval_str=True)
        self.__signature__ = _of_caller(signature, tuple[Variable, ...] if self.multiple_results else Variable)
        schema = Schema(self.name, signature)
        self.variadic = schema.variadic
        self._checks = tuple(schema.checks)
        self.least_inputs = 1 if schema.variadic else len(schema.inputs) - len(schema.optional)
        self._has_floats = schema.has_floats
        self.input_names = tuple(schema.inputs)
        self.argument_names = tuple(schema.arguments)
        self.defaults = tuple(schema.defaults)
        # A user's forward does not get numbers as constants: each would need its own executable.
        variables = as_operands if self.is_own else as_variables
        self._call: Callable[..., R] = schema.caller(
            lambda: [*schema.conversions, *_application(schema)], partial(setattr, self, "_call"), op=self,
            variables=variables,
        )  # fmt: skip

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._call(*args, **kwargs)
        except TypeError:
            misspelt = no_such_argument(self.name, kwargs, self.__signature__.parameters)
            if misspelt is not None:
                raise misspelt from None
            operands = self._given_variables(args, kwargs)
            if operands is None:
                raise
        assert self.of_variables is not None
        try:
            result: R = self.of_variables(*operands)  # type: ignore[assignment]
        except REFUSALS as error:
            raise_by_name(error, self, args, kwargs)
        return result

    def _given_variables(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The inputs and static arguments of a call in which Variables stand for numbers; None for other calls."""
        if self.of_variables is None:
            return None
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError:  # the error of the call
            return None
        bound.apply_defaults()
        inputs, numbers = ([bound.arguments[n] for n in names] for names in (self.input_names, self.argument_names))
        if not any([isinstance(v, Variable) for v in numbers]):
            return None
        return [*as_variables(inputs, self.input_names, self.name), *numbers]

    @cache  # noqa: B019 (one entry for each forward that a pass has)
    def with_forward(self, forward: Callable[..., Any], name: str) -> Op:
        """A copy of the op, with all its facts, another forward, and its own name."""
        twin: Op = object.__new__(self.__class__)
        twin.__dict__.update(self.__dict__)
        twin.name, twin.forward, twin.stands_for = name, forward, self
        return twin

    def infer(self, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output, by tracing `forward` on abstract arrays; cached."""
        if self.elementwise:
            spec = inputs[0].spec
            if spec.differentiable:
                for x in inputs:
                    if x.spec is not spec:
                        break
                else:
                    return spec.alone
        input_specs = tuple(map(_spec_of_variable, inputs))
        specs = self._specs.get((arguments, input_specs))
        if specs is None:
            specs = self.result_specs(input_specs, arguments)
        if specs.__class__ is Widened:
            warn_where_widened(self, inputs)
        return specs

    def result_specs(self, input_specs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output, from those of the inputs; cached."""
        if self.elementwise and input_specs[0].differentiable and input_specs.count(input_specs[0]) == len(input_specs):
            return input_specs[0].alone
        specs = self._specs.get((arguments, input_specs))
        if specs is None:
            if len(self._specs) >= MOST_ANSWERS:
                self._specs.clear()
            specs = self._declared_specs(input_specs, arguments) or self.traced_specs(input_specs, arguments)
            specs = self._specs[arguments, input_specs] = marked_if_wide(specs, input_specs)
        return specs

    def _declared_specs(self, input_specs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...] | None:
        """Shape and dtype of the output by the fact `shape`, or as elementwise ops broadcast; None if that cannot tell,
        or if `forward` should raise the error."""
        keeps = self.view or self.fuses == "moving"  # other ops widen bools and integers
        if len({spec.dtype for spec in input_specs}) != 1 or not (keeps or input_specs[0].differentiable):
            return None
        shapes = [spec.shape for spec in input_specs]
        try:
            if self.shape is not None:
                shape = self.shape(*shapes, *arguments)
            else:
                shape = np.broadcast_shapes(*shapes) if self.elementwise and self.broadcasts else None
        except (TypeError, ValueError):
            return None
        spec = None if shape is None else spec_of(shape, input_specs[0].dtype)
        return None if spec is None or spec.nbytes > _MOST_BYTES else spec.alone

    def is_heavy(self, input_specs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> bool:
        """True if it does much arithmetic per element of such inputs. Without a declared cost, as in users' ops, its
        jaxpr decides; cached."""
        if self.cost is unknown and (arguments, input_specs) not in self._heavy:
            if len(self._heavy) >= MOST_ANSWERS:
                self._heavy.clear()
            with x64_if(any([s.needs_x64 for s in input_specs]) or arguments_need_x64(arguments)):
                trace = interrupt_safe(jax.make_jaxpr(self.traceable(arguments)))
                jaxpr = trace(*[s.abstract() for s in input_specs]).jaxpr
            self._heavy[arguments, input_specs] = does_much(jaxpr)
        return self._heavy[arguments, input_specs] if self.cost is unknown else self.heavy

    def traced_specs(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output, by tracing `forward` on abstract arrays; not cached."""
        try:
            with x64_if(any(s.needs_x64 for s in inputs) or arguments_need_x64(arguments)):
                out = interrupt_safe(jax.eval_shape)(self.traceable(arguments), *[s.abstract() for s in inputs])
        except NOT_APPLICABLE as error:
            cause = None if self.is_own else error  # a user's forward has lines to show
            raise self.refusal(error, inputs, arguments) from cause
        specs = tuple([spec_of(o.shape, o.dtype) for o in (out if self.multiple_results else (out,))])
        for spec in specs:
            if spec.nbytes > _MOST_BYTES:
                raise ValueError(f"{self._shown(inputs, arguments)}: a result of {spec} is too large for any memory")
        return specs

    def refusal(self, error: Exception, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> Exception:
        """The error for an application that `forward` cannot handle."""
        kind = TypeError if isinstance(error, TypeError) else ValueError
        return kind(f"{self._shown(inputs, arguments)}: {error}")

    def _shown(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> str:
        shown = [f"{n}: {s!r}" for n, s in zip(self.names_of(len(inputs)), inputs, strict=True)]
        shown += [f"{n}={v!r}" for n, v in zip(self.argument_names, arguments, strict=True)]
        return f"{self.name}({', '.join(shown)})"

    def checked(self, arguments: Sequence[Any], count: int) -> tuple[Any, ...]:
        """Check static arguments from another source, for `count` inputs, as those of a caller are checked.

        Raises:
            TypeError: An argument is not of the kind in the signature, or there are too many or too few.
            ValueError: An argument has an invalid value, or the op does not take so many inputs.
        """
        if count < self.least_inputs or (count > len(self.input_names) and not self.variadic):
            raise ValueError(f"{self.name}: cannot take {count} inputs")
        if len(arguments) != len(self._checks):
            raise TypeError(f"{self.name}: expected {len(self._checks)} arguments, got {len(arguments)}")
        return tuple([
            value if value is default else check(value, count) if per_input else check(value)
            for value, default, (check, per_input) in zip(arguments, self.defaults, self._checks, strict=True)
        ])

    def bind(self, arguments: tuple[Any, ...], function: Forward | None = None) -> Callable[..., Any]:
        """`forward`, or `function`, with the static arguments bound: a function of the input arrays only."""
        forward = function or self.forward
        if not arguments:
            return forward
        named = self.named(arguments)

        def bound(*arrays: Any) -> Any:
            with np.errstate(over="ignore"):  # too large a number for a small dtype becomes infinite
                return forward(*arrays, **named)

        return bound

    def traceable(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """`forward` with the arguments bound, for tracing: if it exchanges with other processes, as one of them."""
        return as_one_of(self.bind(arguments), groups_of(self, arguments))

    def jaxpr(self, arguments: tuple[Any, ...], inputs: Sequence[Spec]) -> Any:
        """The jaxpr of its forward, for inputs of these shapes and dtypes."""
        with x64_if(arguments_need_x64(arguments) or any([spec.needs_x64 for spec in inputs])):
            return jax.make_jaxpr(self.traceable(arguments))(*[spec.abstract() for spec in inputs]).jaxpr

    @property
    def is_sum(self) -> bool:
        """True if it adds up several arrays, element by element."""
        return self.linear == "together" and self.diagonal and (self.variadic or len(self.input_names) > 1)

    def named(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """The static arguments, by name."""
        values = map(plain, arguments) if self._has_floats else arguments
        return dict(zip(self.argument_names, values, strict=True))

    def names_of(self, count: int) -> tuple[str, ...]:
        """The names of `count` inputs."""
        if self.variadic:
            return tuple(f"{self.input_names[0]}[{i}]" for i in range(count))
        return self.input_names[:count]

    def __repr__(self) -> str:
        return f"<op {self.name}{_without_result(self.__signature__)}>"

    def __reduce__(self) -> str:
        return self.name


def _application(schema: Schema) -> list[str]:
    """Source lines that apply `op` to the inputs and the checked arguments."""
    arguments = "".join(f"{v}, " for v in schema.values)
    if schema.variadic:
        return [f"return apply(op, {schema.inputs[0]}, ({arguments}))"]
    lines = [f"inputs = ({''.join(f'{n}, ' for n in schema.inputs)})"]
    for name in reversed(schema.optional):
        lines.append(f"if {name} is None: inputs = inputs[:{schema.inputs.index(name)}]")
    return [*lines, f"return apply(op, inputs, ({arguments}))"]


def _of_caller(signature: inspect.Signature, returned: Any) -> inspect.Signature:
    """The signature shown to callers, with the return annotation `returned`."""
    parameters = [
        p.replace(annotation=p.empty if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) else text_of_kind(p.annotation))
        for p in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=returned)


def _without_result(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(return_annotation=inspect.Signature.empty)


class Composite(Generic[P, R]):
    """A function on Variables composed of ops. It needs no rule: its parts have theirs.

    Made by the `composite` decorator; callable like an Op.
    """

    __doc__ = Completed(__doc__)
    name: str
    body: Callable[P, R]

    def __init__(self, body: Callable[P, R]) -> None:
        self.body = body
        self.name = self.__name__ = body.__name__
        self.module = self.__module__ = body.__module__
        signature = inspect.signature(body, eval_str=True)
        self.__signature__ = _of_caller(signature, signature.return_annotation)
        schema = Schema(self.name, signature, static=False)

        def lines() -> list[str]:
            values = [*schema.inputs, *[f"{n}={v}" for n, v in zip(schema.arguments, schema.values, strict=True)]]
            return [*schema.conversions, f"return body({'*' * schema.variadic}{', '.join(values)})"]

        self._call: Callable[..., R] = schema.caller(lines, partial(setattr, self, "_call"), body=body)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._call(*args, **kwargs)
        except REFUSALS as error:
            raise_by_name(error, self, args, kwargs)

    def __repr__(self) -> str:
        return f"<composite {self.name}{_without_result(self.__signature__)}>"

    def __reduce__(self) -> str:
        return self.name


def arguments_need_x64(arguments: tuple[Any, ...]) -> bool:
    """True if a 64-bit dtype is among an op's arguments, or occurs in a body among them."""
    return any([
        a.itemsize == 8 if isinstance(a, np.dtype)
        else arguments_need_x64(a) if isinstance(a, tuple)
        else getattr(a, "needs_x64", False)
        for a in arguments
    ])


def plain(argument: Any) -> Any:
    """A static argument as forwards and backward rules receive it."""
    return -0.0 if argument.__class__ is NegativeZero else argument


class Maker(Protocol):
    """The decorator that `op(**facts)` returns: it makes an op that gives a Variable for each array of its forward."""

    @overload
    def __call__(self, forward: Callable[P, jax.Array], /) -> Op[P, Variable]: ...
    @overload
    def __call__(self, forward: Callable[P, Two[jax.Array]], /) -> Op[P, Two[Variable]]: ...
    @overload
    def __call__(self, forward: Callable[P, Three[jax.Array]], /) -> Op[P, Three[Variable]]: ...
    @overload
    def __call__(self, forward: Callable[P, tuple[jax.Array, ...]], /) -> Op[P, tuple[Variable, ...]]: ...


@overload
def op(forward: Callable[P, jax.Array], /) -> Op[P, Variable]: ...
@overload
def op(*, type_name: str = "", **facts: Any) -> Maker: ...
def op(forward: Forward | None = None, /, **facts: Any) -> Any:
    """Make an op from a function on arrays. The signature is the schema.

    Parameters before the `/` (or `*xs`) are Variables, arrays or numbers; trailing ones with default
    None may be left out. Those after it are static, hashable arguments, checked by their annotation
    (`nngrad.graph.arguments`). Callers may pass any by keyword. Further checks are up to
    `forward` itself, which runs on abstract arrays when a Function is made.

    Args:
        type_name: nnabla's type name; by default the name in CamelCase.
        facts: The fields of `Facts`, with their meaning there. Undeclared facts are not relied
            on.
    """
    return Op(forward) if forward is not None else lambda function: Op(function, **facts)


def composite(body: Callable[P, R]) -> Composite[P, R]:
    """Make a function on Variables from a `body` that applies other functions. The signature is the schema, as in
    `op`, except that any input may default to None."""
    return Composite(body)
