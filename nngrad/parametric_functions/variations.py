"""Variations of `affine` and `convolution` that transform their weights.

A variation is a function of a `Layer` and its own arguments, from which `layer` makes the public function: its
arguments come after those of `affine` or `convolution`, before `name`, as in nnabla.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from .. import functions as F
from ..extend import Array, Variable
from ..functions.quantization import written
from ..initializer import Rng as Rng
from ..parameter import get_parameter_or_create
from .affine import affine
from .convolution import convolution
from .layer_arguments import Shapes, of_affine, of_convolution
from .layer_parameters import ZEROS, initial, own_parameters, parameter
from .layer_parameters import Init as Init

# Errors describe arguments by their annotations, whose names are resolved in this module.
Level: TypeAlias = float | Array
"""A number, which becomes an untrained parameter, or a Variable or an array."""
Given = Mapping[str, Any]
"""The arguments of a call by name."""
Quantizer = Callable[[Variable], Variable]


class LayerKind(NamedTuple):
    """The layer that is varied: `affine` or `convolution`."""

    base: Callable[..., Variable]
    scope: str
    """The end of the scope names of its variations."""
    shapes: Callable[[Given], Shapes]
    words: Mapping[str, str]
    """The shapes of its parameters, as docstrings give them."""


AFFINE = LayerKind(
    affine, "affine",
    lambda values: of_affine(values["inp"], values["n_outmaps"], values["base_axis"], values["rng"]),
    {"kind": "affine", "W": "W (size of the flattened axes, *n_outmaps)", "outputs": "(*n_outmaps)"},
)  # fmt: skip
CONVOLUTION = LayerKind(
    convolution, "conv",
    lambda values: of_convolution(
        values["inp"], values["outmaps"], values["kernel"], values["group"], values.get("channel_last", False),
        values["base_axis"], values["rng"],
    ),
    {"kind": "convolution", "W": "W (outmaps, channels / group, *kernel)", "outputs": "(outmaps,)"},
)  # fmt: skip


class Layer:
    """One call of a layer: its arguments and its parameters."""

    def __init__(self, kind: LayerKind, values: Given) -> None:
        self._function, self._given = getattr(F, kind.base.__name__), values
        self._shapes = kind.shapes(values)
        self.fixed: bool = values["fix_parameters"]

    def quantized(self, quantize_w: Quantizer | None, quantize_b: Quantizer | None) -> Variable:
        """The output with W and b quantised by these functions; `forward()` also writes the results to W_q and b_q."""
        given, shapes = self._given, self._shapes
        w = self._written("W", parameter("W", shapes.weight, given["w_init"], shapes.default, self.fixed), quantize_w)
        b = None
        if given["with_bias"]:
            b = self._written("b", parameter("b", shapes.bias, given["b_init"], ZEROS, self.fixed), quantize_b)
        names = ("pad", "stride", "dilation", "group", "channel_last")
        arguments = {name: given[name] for name in names if name in given}
        y: Variable = self._function(given["inp"], w, b, base_axis=shapes.base_axis, **arguments)
        return y

    def _written(self, name: str, p: Variable, quantizer: Quantizer | None) -> Variable:
        if quantizer is None:
            return p
        init, default = self._given[f"{name.lower()}_init"], self._shapes.default if name == "W" else ZEROS
        p_q = get_parameter_or_create(f"{name}_q", p.shape, initial(init, default), False)
        y = quantizer(p)
        return written(y, {p_q: y})


def layer(
    kind: LayerKind, scope: str, variation: Callable[..., Variable], channel_last: bool = False
) -> Callable[..., Variable]:
    """Make the public function from a variation of `affine` or `convolution`."""
    extra = list(inspect.signature(variation).parameters.values())[1:]
    left_out = {"apply_w", "apply_b", *(() if channel_last else ("channel_last",))}
    base = [p for p in inspect.signature(kind.base).parameters.values() if p.name not in left_out]
    parameters = [*base[:-1], *[p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in extra], base[-1]]
    signature = inspect.Signature(parameters, return_annotation="Variable")
    names = [p.name for p in parameters if p.name != "name"]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty and p.name != "name"}
    own_names = [p.name for p in extra]

    def body(*args: Any, **kwargs: Any) -> Variable:
        values = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if len(values) != len(names) or len(args) > len(names) or not kwargs.keys().isdisjoint(names[: len(args)]):
            signature.bind(*args, **kwargs)  # raises an error that says what is wrong
        return variation(Layer(kind, values), **{name: values[name] for name in own_names})

    body.__name__ = body.__qualname__ = f"{variation.__name__}_{kind.base.__name__}"
    body.__module__ = variation.__module__
    body.__doc__ = _doc(variation, kind, channel_last)
    body.__signature__ = signature  # type: ignore[attr-defined]
    return own_parameters(f"{scope}_{kind.scope}")(body)


def _doc(variation: Callable[..., Variable], kind: LayerKind, channel_last: bool) -> str:
    """The docstring of a layer, from that of the variation, whose parts in braces are filled in."""
    words = dict(kind.words)
    if channel_last and kind is CONVOLUTION:
        words["W"] += ", or (outmaps, *kernel, channels / group) with `channel_last`"
    head, _, entries = inspect.cleandoc(variation.__doc__ or "").format(**words).partition("\nArgs:\n")
    head = "\n\n".join([textwrap.fill(paragraph, 115) for paragraph in head.split("\n\n")])
    others = "" if "    ...:" in entries else f"\n    ...: As in `{kind.words['kind']}`."
    return f"{head}\nArgs:\n{entries}{others}"
