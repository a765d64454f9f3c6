"""Graphs by name on the command line: a Variable of a Python script, or an output of a file of `nn.save_graph`."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from ..extend import Variable, did_you_mean
from ..files.graphs import load_graph
from ..inspection import source_locations

_ZIP = b"PK\x03\x04"


class NoGraph(ValueError):
    """No graph has that name; the message says why."""


class NamedGraph(NamedTuple):
    """A graph that was requested by name."""

    title: str
    """The file and the name."""
    outputs: tuple[Variable, ...]
    parameters: dict[str, Variable]
    """Unregistered parameters, by name."""


def graph_named(target: str) -> NamedGraph:
    """The graph that `target` names.

    'train.py:loss' is the global `loss` of a script: a Variable, a list, tuple or dict of them, or a function without
    arguments that returns one of these. The script is run as a module, so code under `if __name__ == "__main__":` is
    skipped; functions remember the lines that applied them. 'loss.graph' is a file written by `nn.save_graph`, and
    'loss.graph:slope' one of its outputs; no code comes from such a file.

    Args:
        target: The name of the graph.

    Raises:
        NoGraph: There is no such name, or it does not provide Variables; or the script raises an error, whose traceback
            within the script is part of the message.
        ValueError: The file of a graph is damaged.
        OSError: The file cannot be read.
    """
    path, name, is_kept = _found(target)
    if is_kept:
        return _of_file(path, name)
    with source_locations():
        value = _global_of(path, name)
        if _is_function(value):
            try:
                value = value()
            except Exception as error:
                raise NoGraph(_failed(f"{path}: {name}()", error, path)) from error
    return NamedGraph(f"{path.name}:{name}", _variables(value, f"{path}:{name}"), {})


def _found(target: str) -> tuple[Path, str, bool]:
    """The file, the name, and whether the file is one of `nn.save_graph`."""
    path, name = _parted(target)
    if not path.name:
        raise NoGraph(f"{target!r} does not name a file; give SCRIPT:NAME, or a file of nn.save_graph")
    with path.open("rb") as file:
        is_kept = file.read(len(_ZIP)) == _ZIP
    if not is_kept and not name:
        raise NoGraph(f"{path}: which Variable? Add its name, as in {path}:NAME")
    return path, name, is_kept


def _parted(target: str) -> tuple[Path, str]:
    """The file and the name; the name may be missing."""
    before, colon, name = target.rpartition(":")
    if colon and name.isidentifier() and not Path(target).exists():
        return Path(before), name
    if before and not name and not Path(target).exists():
        return Path(before), ""
    if colon and before and Path(before).is_file():
        return Path(before), name
    return Path(target), ""


# ---------------------------------------------------------------- files of graphs


def _of_file(path: Path, name: str) -> NamedGraph:
    graph = load_graph(path)
    title = f"{path.name}:{name}" if name else path.name
    outputs = graph.outputs
    if name:
        if not isinstance(outputs, dict) or name not in outputs:
            known = outputs if isinstance(outputs, dict) else ()
            raise NoGraph(f"{path}: the graph has no output {name!r}{_known(name, known)}")
        outputs = outputs[name]
    return NamedGraph(title, _variables(outputs, title), graph.parameters)


# ---------------------------------------------------------------- scripts


def _global_of(path: Path, name: str) -> Any:
    """The global `name` of a script, after running it."""
    module = _run(path)
    if not hasattr(module, name):
        names = [key for key, value in vars(module).items() if _may_give(value, path)]
        hint = _known(name, names) or "; what is built under `if __name__ == \"__main__\":` is not there"
        raise NoGraph(f"{path}: there is no {name!r} in it once it has run{hint}")
    return getattr(module, name)


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, Variable)


def _may_give(value: Any, path: Path) -> bool:
    """Whether a global of a script is a Variable, or a function without arguments that the script defines."""
    code = getattr(value, "__code__", None)
    return isinstance(value, Variable) or (
        code is not None and code.co_filename == str(path) and not code.co_argcount
    )


def _run(path: Path) -> ModuleType:
    """Run a script as a module, with its folder on the import path, and return the module."""
    name = path.stem
    if not name.isidentifier() or name in sys.modules:
        name = f"script_{''.join([c if c.isalnum() else '_' for c in name])}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    folder = str(path.resolve().parent)
    before, given = sys.path[:], sys.argv
    sys.modules[name] = module  # dataclasses and pickle look it up there
    sys.path.insert(0, folder)
    sys.argv = [str(path)]
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except SystemExit as stopped:
        raise NoGraph(f"{path}: it exits with code {stopped.code} before its graphs can be looked at; put "
                      'what it does as a command under `if __name__ == "__main__":`') from None
    except Exception as error:
        raise NoGraph(_failed(str(path), error, path)) from error
    finally:
        sys.path[:], sys.argv = before, given
    return module


def _failed(what: str, error: BaseException, path: Path) -> str:
    """The message for an error in a script, with the part of its traceback from the script on."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    return f"{what} raised an error\n" + "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _variables(value: Any, where: str) -> tuple[Variable, ...]:
    if isinstance(value, Variable):
        return (value,)
    given: Iterable[Any] = value.values() if isinstance(value, Mapping) else value if isinstance(
        value, list | tuple) else ()
    found = tuple(given)
    if not found or not all([isinstance(each, Variable) for each in found]):
        raise NoGraph(f"{where} is {_described(value)}, and not a Variable, a list, tuple or dict of them, or a "
                      "function without arguments that returns one of these")
    return found


def _described(value: Any) -> str:
    if isinstance(value, list | tuple | Mapping):
        if not value:
            return f"an empty {type(value).__name__}"
        within = value.values() if isinstance(value, Mapping) else value
        wrong = next((each for each in within if not isinstance(each, Variable)), None)
        return f"a {type(value).__name__} in which something is of type {type(wrong).__name__}"
    return f"of type {type(value).__name__}"


def _known(name: str, names: Iterable[str]) -> str:
    listed: Sequence[str] = sorted(names)
    if not listed:
        return ""
    return did_you_mean(name, listed) or f"; it has {', '.join(listed[:8])}" + ", ..." * (len(listed) > 8)
