"""What names of other libraries are here: for messages about names that do not exist.

`peers.csv` has a line for each function of F that another library has as well. The column of a library has its name
there, with `:1` behind it if its gradient cannot be differentiated again, and `:0` if it has none. `elsewhere.csv` has
names that no single function of F stands for: methods of arrays, layers, losses, and things that are spelt otherwise.
`nnabla.csv` has a line for each public name of nnabla 1.39: its module, itself, where it is here and a note. The place
here is an expression such as `nn.timing`; '=' stands for the same name in the same module, as `nnabla.functions.tanh`
is `F.tanh`. A name that is not here has none, and the note says why.
"""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Iterable
from pathlib import Path

from .spelling import did_you_mean

_PREFIXES = {"nnabla": "nnabla.functions.", "chainer": "chainer.functions.", "pytorch": "torch.", "jax": "jax."}
"""How names begin in the columns of `peers.csv`."""


@functools.cache
def peers() -> dict[str, dict[str, str]]:
    """The lines of `peers.csv` by the names of functions."""
    return {line["function"]: line for line in _lines("peers.csv")}


@functools.cache
def others() -> dict[str, dict[str, str]]:
    """The lines of `elsewhere.csv` by the last parts of names."""
    return {line["name"]: line for line in _lines("elsewhere.csv")}


@functools.cache
def names_of_nnabla() -> dict[tuple[str, str], dict[str, str]]:
    """The lines of `nnabla.csv` by modules and names."""
    return {(line["module"], line["name"]): line for line in _lines("nnabla.csv")}


def _lines(table: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(table).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


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


def _in_nnabla(module: str, name: str) -> str:
    """What there is instead of a name of nnabla's that is not here, or is elsewhere; "" for other names."""
    line = names_of_nnabla().get((module, name), {"here": "="})
    if line["here"] == "=":
        return ""
    here, note = line["here"], line["note"]
    said = f"is {here} here" + f" ({note})" * bool(note) if here else f"has no counterpart ({note})"
    return f"; {module}.{name} {said}; docs/from_nnabla.md lists nnabla's names"


def no_attribute(
    message: str, name: str, known: Iterable[str], fallback: str = "", nnabla: str = "nnabla"
) -> AttributeError:
    """The error that says that there is no attribute `name`, and leads on: to what another library's name is here, to
    the function of F, or to the names that may have been meant.

    Args:
        message: What is said first.
        name: What was asked for.
        known: The names that there are.
        fallback: The end of the message where nothing is like it.
        nnabla: The module or class of nnabla's that has such names.
    """
    line = others().get(name)
    if end := _in_nnabla(nnabla, name):
        pass
    elif line:
        end = f"; {line['elsewhere']} is {line['here']} here"
    elif name in peers():
        end = f"; there is F.{name} in nngrad.functions"
    else:
        where, functions = _functions_known_as(name)
        same = f"; {where} is {' or '.join(f'F.{function}' for function in functions)} here" if functions else ""
        end = same or did_you_mean(name, known) or fallback
    return AttributeError(message + end, name=name, obj=None)  # with an object, Python adds names that are spelt alike


class ImportsLeadOn:
    """Lets imports of what is not there say what attributes say that are not there.

    Python's own words are "No module named" and "cannot import name", whatever `__getattr__` of a package says. This
    finder, which is asked after all others, is the one place where more can be said. It finds nothing, keeps nothing,
    and has to do with the packages of nngrad alone that have a `__getattr__`.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Let imports go on to their own error, or raise a better one.

        Raises:
            ImportError: It says what there is instead of `name`.
        """
        package, _, last = name.rpartition(".")
        module = sys.modules.get(package)
        if package.partition(".")[0] != __name__.partition(".")[0] or not hasattr(module, "__getattr__"):
            return
        try:
            found = getattr(module, last)
        except AttributeError as error:
            raise ImportError(str(error), name=name) from None
        kind = type(found).__name__
        raise ImportError(f"{name} is no module but a {kind}: write `from {package} import {last}`", name=name)
