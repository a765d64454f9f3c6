"""PF: functions with parameters of their own, made in the present scope at the first call and found there after.

`name=` puts a scope around a call: `PF.affine(x, 10, name="fc")` makes 'fc/affine/W' and 'fc/affine/b'.
Initializers are functions of a shape (`nngrad.initializer`), arrays or numbers. `fix_parameters` lets no gradient
reach the parameters. `apply_w` and `apply_b` are functions that the weight or bias goes through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graph.spelling import did_you_mean
from .activation import prelu as prelu
from .affine import affine as affine
from .affine import embed as embed
from .attention import multi_head_attention as multi_head_attention
from .attention import transformer as transformer
from .attention import transformer_decode as transformer_decode
from .attention import transformer_encode as transformer_encode
from .batch_statistics import batch_normalization as batch_normalization
from .batch_statistics import fused_batch_normalization as fused_batch_normalization
from .batch_statistics import mean_subtraction as mean_subtraction
from .batch_statistics import sync_batch_normalization as sync_batch_normalization
from .binary import binary_connect_affine as binary_connect_affine
from .binary import binary_connect_convolution as binary_connect_convolution
from .binary import binary_weight_affine as binary_weight_affine
from .binary import binary_weight_convolution as binary_weight_convolution
from .convolution import convolution as convolution
from .convolution import deconvolution as deconvolution
from .convolution import deformable_convolution as deformable_convolution
from .convolution import depthwise_convolution as depthwise_convolution
from .convolution import depthwise_deconvolution as depthwise_deconvolution
from .incremental import inq_affine as inq_affine
from .incremental import inq_convolution as inq_convolution
from .layer_parameters import parametric_function_api as parametric_function_api
from .low_rank import cpd3_convolution as cpd3_convolution
from .low_rank import svd_affine as svd_affine
from .low_rank import svd_convolution as svd_convolution
from .min_max import min_max_quantize as min_max_quantize
from .min_max import min_max_quantized_affine as min_max_quantized_affine
from .min_max import min_max_quantized_convolution as min_max_quantized_convolution
from .normalization import group_normalization as group_normalization
from .normalization import instance_normalization as instance_normalization
from .normalization import layer_normalization as layer_normalization
from .pruned import pruned_affine as pruned_affine
from .pruned import pruned_convolution as pruned_convolution
from .quantized import fixed_point_quantized_affine as fixed_point_quantized_affine
from .quantized import fixed_point_quantized_convolution as fixed_point_quantized_convolution
from .quantized import pow2_quantized_affine as pow2_quantized_affine
from .quantized import pow2_quantized_convolution as pow2_quantized_convolution
from .recurrent import LSTMCell as LSTMCell
from .recurrent import gru as gru
from .recurrent import lstm as lstm
from .recurrent import lstm_cell as lstm_cell
from .recurrent import rnn as rnn
from .weights import spectral_norm as spectral_norm
from .weights import weight_normalization as weight_normalization

if not TYPE_CHECKING:  # checkers of types say it themselves

    def __getattr__(name: str) -> Any:
        raise AttributeError(f"nngrad.parametric_functions has no function {name!r}{did_you_mean(name, globals())}")
