"""What names of other libraries are in nngrad, for error messages and pages of the documentation.

`peers.csv` has a line for each function of F that another library has as well. Each library's column has its name
there, followed by `:1` if its gradient cannot be differentiated again, and by `:0` if it has none. `elsewhere.csv` has
names to which no single function of F corresponds: methods of arrays, layers, losses, and other spellings.
`nnabla.csv` has a line for each public name of nnabla 1.39: its module, its name, its counterpart here and a note. The
counterpart is an expression such as `nn.checks`; '=' means the same name in the same module, as `nnabla.functions.tanh`
is `F.tanh`. A name without a counterpart has an empty one, and the note says why.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable
from pathlib import Path

from ..extend import engine, provide

_PREFIXES = {"nnabla": "nnabla.functions.", "chainer": "chainer.functions.", "pytorch": "torch.", "jax": "jax."}
"""The prefixes of the names in the columns of `peers.csv`."""


@functools.cache
def peers() -> dict[str, dict[str, str]]:
    """The lines of `peers.csv`, by function."""
    return {line["function"]: line for line in _lines("peers.csv")}


@functools.cache
def others() -> dict[str, dict[str, str]]:
    """The lines of `elsewhere.csv`, by the last parts of names."""
    return {line["name"]: line for line in _lines("elsewhere.csv")}


@functools.cache
def names_of_nnabla() -> dict[tuple[str, str], dict[str, str]]:
    """The lines of `nnabla.csv`, by module and name."""
    return {(line["module"], line["name"]): line for line in _lines("nnabla.csv")}


def _lines(table: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(table).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _in_words(functions: list[str]) -> str:
    """At most two functions of F, those that take a Variable for each operand if there are such."""
    whole = [function for function in functions if not function.endswith("_scalar")] or functions
    return " or ".join([f"F.{function}" for function in whole[:2]])


def _functions_known_as(name: str) -> tuple[str, str]:
    """The full name of another library's function with this name, and the functions of F that do the same."""
    where = ""
    functions: list[str] = []
    for function, line in peers().items():
        for library, prefix in _PREFIXES.items():
            known = line[library].partition(":")[0]
            if known.rpartition(".")[2] == name:
                where, functions = where or prefix + known, [*functions, function]
                break
    return where, _in_words(functions)


def counterpart(of_numpy: str) -> str:
    """What a function of NumPy, such as "numpy.linalg.norm", is here, for a message; "" if there is nothing like it."""
    library, _, name = of_numpy.rpartition(".")
    functions = [function for function, line in peers().items() if line["jax"].partition(":")[0] == of_numpy]
    if functions:
        return _in_words(functions)
    elsewhere = others().get(name, {"elsewhere": ""})
    if elsewhere["elsewhere"] == of_numpy:
        return elsewhere["here"]
    return f"F.{name}" if library == "numpy" and name in peers() else ""


def _in_nnabla(module: str, name: str) -> str:
    """The counterpart of a name of nnabla's that is missing or elsewhere here, as a clause; "" for other names."""
    line = names_of_nnabla().get((module, name), {"here": "="})
    if line["here"] == "=":
        return ""
    here, note = line["here"], line["note"]
    said = f"is {here} here" + f" ({note})" * bool(note) if here else f"has no counterpart ({note})"
    return f"; {module}.{name} {said}; docs/from_nnabla.md lists nnabla's names"


def hint(name: str, module: str) -> str:
    """A clause on a name that `module`, or a class, of nngrad lacks, if it is a name of another library or of F; else
    ""."""
    if clause := _in_nnabla(module.replace("nngrad.nnabla", "nnabla").replace("nngrad", "nnabla", 1), name):
        return clause
    if line := others().get(name):
        return f"; {line['elsewhere']} is {line['here']} here"
    if name in peers() and module != "nngrad.functions":  # F itself lacks it
        return f"; there is F.{name} in nngrad.functions"
    where, functions = _functions_known_as(name)
    return f"; {where} is {functions} here" if where else ""


_KEPT = "graphs are kept, and every result can be differentiated again: leave it out"
_ARGUMENTS = {
    "dim": "axis, axes", "dims": "axes", "keepdim": "keepdims", "retain_graph": _KEPT, "create_graph": _KEPT,
    "allow_unused": "unreachable", "requires_grad": "need_grad", "padding": "pad",
    "groups": "group", "kernel_size": "kernel", "bias": "with_bias", "scale_factor": "scale",
    "size": "output_size", "negative_slope": "alpha",
}
"""Arguments of PyTorch's: their names here, of which a function has one, or what to do without them."""


def argument(name: str, known: Iterable[str]) -> str:
    """A clause on an argument that a function with the arguments `known` lacks, if PyTorch's functions have it; else
    ""."""
    here = _ARGUMENTS.get(name, "")
    there = [name_here for name_here in here.split(", ") if name_here in known]
    return f"; it is {there[0]!r} here" if there else f"; {here}" * (here == _KEPT)


provide(engine, {"name_elsewhere": hint, "counterpart": counterpart, "argument_elsewhere": argument})
