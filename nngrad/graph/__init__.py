"""Computation graphs: Variables, Functions, the ops that Functions apply, and traversals."""

from .engine import engine
from .function import Function, RuleCall, apply, create
from .leaf import as_variable
from .ndarray import NdArray
from .op import Array, Composite, Op, composite, op
from .options import Switched, build_options, contained
from .signatures import AnyArray, AnyShape, AsFloats, Floats, KeptDtype, WithAxis
from .spec import Spec, spec_of
from .traverse import among, by_rank, functions_of, leaves_of, path_between
from .variable import Variable

__all__ = [
    "AnyArray", "AnyShape", "Array", "AsFloats", "Composite", "Floats", "Function", "KeptDtype", "NdArray", "Op",
    "RuleCall", "Spec", "Switched", "Variable", "WithAxis", "among", "apply", "as_variable", "build_options", "by_rank",
    "composite", "contained", "create", "engine", "functions_of", "leaves_of", "op", "path_between", "spec_of",
]  # fmt: skip
