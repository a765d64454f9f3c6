"""Weight reparametrisations for `apply_w`, with their own parameters."""

from __future__ import annotations

from .. import functions as F
from ..extend import Array, Variable
from ..initializer import NormalInitializer, WeightNormalizationScaleInitializer
from ..parameter import get_parameter_or_create
from .layer_arguments import axis
from .layer_parameters import Init, initial, own_parameters, parameter


@own_parameters("spectral-norm")
def spectral_norm(
    w: Array, dim: int = 0, itr: int = 1, eps: float = 1e-12, test: bool = False, u_init: Init = None,
    fix_parameters: bool = True, name: str | None = None,
) -> Variable:
    """`w` divided by its largest singular value, found by power iteration (Miyato et al., 2018).

    `PF.convolution(x, 16, (3, 3), apply_w=PF.spectral_norm)` gives 'conv/spectral-norm/u'; for `PF.affine` and
    `PF.embed`, whose outputs are the last axis of the weight, use `apply_w=lambda w: PF.spectral_norm(w, dim=1)`.

    Parameter, not trained: u (w.shape[dim],), initially normal, which each `forward()` iterates `itr` steps further,
    however often the layer is called in its graph; all calls begin at the same u.

    Args:
        w: A weight.
        u_init: Initial u.
        fix_parameters: Without effect: there is nothing to train.
        ...: As in `F.spectral_norm`.
    """
    dim = axis(dim, w.ndim, "dim")
    u = get_parameter_or_create("u", (w.shape[dim],), initial(u_init, NormalInitializer()), False)
    normalised: Variable = F.spectral_norm(w, u, dim=dim, itr=itr, eps=eps, test=test)
    return normalised


@own_parameters("wn")
def weight_normalization(
    w: Array, dim: int = 0, eps: float = 1e-12, g_init: Init = None, fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """`g w / sqrt(sum(w^2) + eps)`, summed over all axes but `dim` (Salimans and Kingma, 2016).

    `PF.convolution(x, 16, (3, 3), apply_w=PF.weight_normalization)` gives 'conv/wn/g'; for `PF.affine`, use
    `apply_w=lambda w: PF.weight_normalization(w, dim=1)`.

    Parameter: g of shape (w.shape[dim],), initially the lengths of the slices of `w`, so the first result is `w`.

    Args:
        w: A weight.
        g_init: Initial g.
        fix_parameters: Whether g is a constant.
        ...: As in `F.weight_normalization`.
    """
    dim = axis(dim, w.ndim, "dim")
    g = parameter("g", (w.shape[dim],), g_init, WeightNormalizationScaleInitializer(w, dim, eps), fix_parameters)
    return F.weight_normalization(w, g, dim=dim, eps=eps)
