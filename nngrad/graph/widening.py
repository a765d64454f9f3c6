"""The warning that float64 data turns a graph of float32 parameters into a float64 one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .options import build_options
from .source_location import warn_user
from .spec import Spec
from .variable import Variable

if TYPE_CHECKING:
    from .op import Op


class Widened(tuple[Spec, ...]):
    """Specs of results, some of them float64 although some inputs are floating and narrower."""

    __slots__ = ()


def marked_if_wide(specs: tuple[Spec, ...], given: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """The specs of results, as `Widened` if that is so."""
    narrower = any([s.differentiable and not s.needs_x64 for s in given])
    return Widened(specs) if narrower and any([s.dtype == np.float64 for s in specs]) else specs


def warn_where_widened(op: Op, inputs: tuple[Variable, ...]) -> None:
    """Warn the user if a Variable that needs a gradient is promoted by float64 data that needs none.

    A graph that is float64 on purpose has float64 parameters, and does not get the warning.
    """
    if build_options().emitting.builder is not None:
        return
    floating = [(n, x) for n, x in zip(op.names_of(len(inputs)), inputs, strict=True) if x.spec.differentiable]
    promoted = [(n, x) for n, x in floating if not x.spec.needs_x64 and x.need_grad]
    data = [(n, x) for n, x in floating if x.spec.needs_x64 and not x.need_grad] if promoted else []
    if data:
        (name, x), (other, narrow) = data[0], promoted[0]
        called = f" ({narrow.name!r})" if narrow.name else ""
        warn_user(
            f"{op.name}: {name} is data of {x.spec}, so all that follows is computed in float64, though "
            f"{other}{called} is {narrow.spec} and needs a gradient; this is slow. Give the data as np.float32, or "
            "make Variables within nn.context_scope(nn.get_extension_context('cpu')), where float64 arrays become "
            f"float32. If float64 is meant, let {other} be float64, or cast it: F.cast({other}, 'float64')"
        )
