"""PF: functions with parameters of their own, made in the present scope at the first call and found there after.

`name=` puts a scope around a call: `PF.affine(x, 10, name="fc")` makes 'fc/affine/W' and 'fc/affine/b'.
Initializers are functions of a shape (`nngrad.initializer`), arrays or numbers. `fix_parameters` lets no gradient
reach the parameters. `apply_w` and `apply_b` are functions that the weight or bias goes through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graph.spelling import did_you_mean
from ..layer_parameters import parametric_function_api as parametric_function_api
from .activation import prelu as prelu
from .affine import affine as affine
from .affine import embed as embed
from .convolution import convolution as convolution
from .convolution import deconvolution as deconvolution
from .convolution import deformable_convolution as deformable_convolution
from .convolution import depthwise_convolution as depthwise_convolution
from .normalization import batch_normalization as batch_normalization
from .normalization import layer_normalization as layer_normalization
from .recurrent import LSTMCell as LSTMCell
from .recurrent import gru as gru
from .recurrent import lstm as lstm
from .recurrent import lstm_cell as lstm_cell
from .recurrent import rnn as rnn

if not TYPE_CHECKING:  # checkers of types say it themselves

    def __getattr__(name: str) -> Any:
        raise AttributeError(f"nngrad.parametric_functions has no function {name!r}{did_you_mean(name, globals())}")
