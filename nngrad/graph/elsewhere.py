"""What names of other libraries are here: for messages about names that do not exist.

`peers.csv` has a line for each function of F that another library has as well. The column of a library has its name
there, with `:1` behind it if its gradient cannot be differentiated again, and `:0` if it has none. `elsewhere.csv` has
names that no single function of F stands for: methods of arrays, layers, losses, and things that are spelt otherwise.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable
from pathlib import Path

from .spelling import did_you_mean

_PREFIXES = {"nnabla": "nnabla.functions.", "chainer": "chainer.functions.", "pytorch": "torch.", "jax": "jax."}
"""How names begin in the columns of `peers.csv`."""


@functools.cache
def peers() -> dict[str, dict[str, str]]:
    """The lines of `peers.csv` by the names of functions."""
    with Path(__file__).with_name("peers.csv").open(encoding="utf-8", newline="") as file:
        return {line["function"]: line for line in csv.DictReader(file)}


@functools.cache
def others() -> dict[str, dict[str, str]]:
    """The lines of `elsewhere.csv` by the last parts of names."""
    with Path(__file__).with_name("elsewhere.csv").open(encoding="utf-8", newline="") as file:
        return {line["name"]: line for line in csv.DictReader(file)}


def _functions_known_as(name: str) -> tuple[str, list[str]]:
    """Where another library has a function of that name, and the functions of F that do the same, at most two."""
    where = ""
    functions: list[str] = []
    for function, line in peers().items():
        for library, prefix in _PREFIXES.items():
            known = line[library].partition(":")[0]
            if known.rpartition(".")[2] == name:
                where, functions = where or prefix + known, [*functions, function]
                break
    whole = [function for function in functions if not function.endswith("_scalar")] or functions
    return where, whole[:2]


def no_attribute(message: str, name: str, known: Iterable[str], fallback: str = "") -> AttributeError:
    """The error that says that there is no attribute `name`, and leads on: to what another library's name is here, to
    the function of F, or to the names that may have been meant.

    Args:
        message: What is said first.
        name: What was asked for.
        known: The names that there are.
        fallback: The end of the message where nothing is like it.
    """
    line = others().get(name)
    if line:
        end = f"; {line['elsewhere']} is {line['here']} here"
    elif name in peers():
        end = f"; there is F.{name} in nngrad.functions"
    else:
        where, functions = _functions_known_as(name)
        same = f"; {where} is {' or '.join(f'F.{function}' for function in functions)} here" if functions else ""
        end = same or did_you_mean(name, known) or fallback
    return AttributeError(message + end, name=name, obj=None)  # with an object, Python adds names that are spelt alike
