"""A fault in a function of a module that is imported already: the function gets the code that the faulty file has."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

from .faults import Fault

Key = tuple[str, int]


def codes_of(source: bytes, path: Path) -> dict[Key, list[CodeType]]:
    """The code of everything in a file, by name and first line."""
    found: dict[Key, list[CodeType]] = {}
    stack = [compile(source, str(path), "exec", dont_inherit=True)]
    while stack:
        code = stack.pop()
        found.setdefault((code.co_qualname, code.co_firstlineno), []).append(code)
        stack += inner(code)
    return found


def inner(code: CodeType) -> Iterator[CodeType]:
    """The code of functions within other code."""
    return (each for each in code.co_consts if isinstance(each, CodeType))


def is_swappable(fault: Fault, root: Path) -> bool:
    """Whether nothing differs that runs when the file is imported, and no function needs other variables."""
    source = (root / fault.path).read_bytes()
    before, after = codes_of(source, root / fault.path), codes_of(fault.planted(source), root / fault.path)
    if before.keys() != after.keys():
        return False
    for key, codes in before.items():
        if codes == after[key]:
            continue
        if len(codes) > 1:
            return False
        (code,), (other,) = codes, after[key]
        consts = [[c for c in each.co_consts if not isinstance(c, CodeType)] for each in (code, other)]
        runs_once = not code.co_flags & inspect.CO_OPTIMIZED
        if code.co_freevars != other.co_freevars:
            return False
        if runs_once and (code.co_code != other.co_code or consts[0] != consts[1]):
            return False
    return True


def swap(path: Path) -> None:
    """Let all functions of a file have the code that it has now."""
    codes = codes_of(path.read_bytes(), path)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == str(path):
            code, *others = codes[each.__code__.co_qualname, each.__code__.co_firstlineno]
            if not others:
                each.__code__ = code
