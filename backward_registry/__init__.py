"""The backward rule of every op; the files are named as in `nngrad/functions`.

A rule is a function on graphs: `rule(f, *gys)` gets the Function and the gradient of each of its
outputs, and returns one gradient per input (alone where there is one input). It calls `F` and
operators, so what it emits can be differentiated in turn. `None` means that the gradient is zero.
"""

from .rules import OWN as OWN
from .rules import MissingRule as MissingRule
from .rules import Registry as Registry
from .rules import Rule as Rule
from .rules import backward as backward
from .rules import missing as missing
from .rules import non_differentiable as non_differentiable
from .rules import register as register
from .rules import registry as registry
from .rules import show_registry as show_registry

# isort: split
# Their files ask for the names above.
from . import (  # noqa: F401
    activation,
    arithmetic,
    array,
    attention,
    augmentation,
    batch_statistics,
    bessel,
    bits,
    bodies,
    clipping,
    collectives,
    comparison,
    contractions,
    control,
    convolution,
    cumulative,
    decompositions,
    deformable,
    detection,
    distances,
    distributions,
    elementwise,
    factors,
    fourier,
    fused,
    images,
    incomplete,
    indexing,
    jax_derivatives,
    likelihoods,
    linear,
    loss,
    movement,
    noise,
    normalization,
    numbers,
    packed_sequences,
    patches,
    polynomial,
    pooling,
    quantization,
    quantized_layers,
    recurrent,
    reduction,
    regions,
    resampling,
    rounding,
    selection,
    separable,
    sets,
    shaping,
    slicing,
    solves,
    special,
    spectra,
    stochastic,
    units,
    validation,
    warping,
    weighted_points,
    weighting,
)
