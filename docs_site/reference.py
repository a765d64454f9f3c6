"""The pages of the reference: what they have in Markdown, for mkdocstrings to fill in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

from nngrad_command import __version__

from .names import Page, pages

_INDEX = f"""\
# Reference

Every public name of nngrad {__version__}, from its docstring. Names begin as these lines have it, on all pages:

```python
import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
import nngrad.initializer as I
import nngrad.nnabla.communicators as C
import nngrad.jax as nj
```

Where an argument of `F` is said to be of some shape, it may be a Variable, an array or a number.
[Functions, and how often they can be differentiated](../functions.md) is a table of all of `F`.

| page | names |
| --- | --- |
"""


def reference() -> dict[str, str]:
    """The Markdown of each page, by its path below `docs/`."""
    among = pages()
    places = _first_places(among)
    rows = []
    for page in among:
        names = ", ".join([f"[`{name.shown}`][{name.shown}]" for name in page.names])
        rows.append(f"| [{page.title}]({page.path.removeprefix('reference/')}) | {names} |\n")
    return {"reference/index.md": _INDEX + "".join(rows)} | {p.path: "".join(_lines(p, places)) for p in among}


def contents() -> list[dict[str, object]]:
    """The part of the site's contents that the reference is."""
    among = pages()
    of_nn = [{page.title: page.path} for page in among if page.path.startswith("reference/nn/")]
    functions = [{page.title: page.path} for page in among if page.path.startswith("reference/functions/")]
    others = [
        {f"{page.imported.rpartition(' ')[2]}: {page.title[0].lower()}{page.title[1:]}": page.path}
        for page in among
        if page.path.count("/") == 1
    ]
    return [{"All names": "reference/index.md"}, {"nn": of_nn}, {"F: functions": functions}, *others]


def _first_places(among: Iterable[Page]) -> dict[str, str]:
    """The name that an object is described under, by where it is defined: the one of the module with its definition,
    or else the first."""
    at_home: dict[str, str] = {}
    first: dict[str, str] = {}
    for page in among:
        module = page.imported.split()[1] + "."
        for name in page.names:
            first.setdefault(name.path, name.shown)
            if module != "nngrad." and name.path.startswith(module):
                at_home[name.path] = name.shown
    return first | at_home


def _lines(page: Page, places: dict[str, str]) -> Iterator[str]:
    classes = {name.value for name in page.names if inspect.isclass(name.value)}  # whose members are described there
    yield f"# {page.title}\n\n```python\n{page.imported}\n```\n\n| name | |\n| --- | --- |\n"
    for name in page.names:
        yield f"| [`{name.shown}`][{name.shown}] | {name.summary.replace('|', chr(92) + '|')} |\n"
    for name in page.names:
        first = places[name.path]
        if first != name.shown:
            yield f"\n## {name.shown} {{ #{name.shown} }}\n\nThe same as [`{first}`][{first}].\n"
            continue
        yield f"\n[](){{ #{name.shown} }}\n\n::: {name.path}\n    options:\n"
        yield f"      heading: {name.shown}\n      toc_label: {name.shown}\n"
        if inspect.isclass(name.value) and not classes.isdisjoint(inspect.getmro(name.value)[1:]):
            yield "      inherited_members: false\n"
