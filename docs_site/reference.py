"""The pages of the reference: what they have in Markdown, for mkdocstrings to fill in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

from nngrad_command import __version__

from .names import Name, Page, pages

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
    written = {page.path: _page(page, among) for page in among}
    rows = [f"| [{page.title}]({page.path.removeprefix('reference/')}) | {_listed(page)} |\n" for page in among]
    return {"reference/index.md": _INDEX + "".join(rows), **written}


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


def _listed(page: Page) -> str:
    return ", ".join([f"[`{name.shown}`][{name.shown}]" for name in page.names])


def _page(page: Page, among: list[Page]) -> str:
    return "".join(_lines(page, _first_places(among)))


def _first_places(among: Iterable[Page]) -> dict[str, str]:
    """The first name that an object has, by where it is defined: it is described there alone."""
    places: dict[str, str] = {}
    for page in among:
        for name in page.names:
            if _is_home(page, name.path):
                places[name.path] = name.shown
    for page in among:
        for name in page.names:
            places.setdefault(name.path, name.shown)
    return places


def _is_home(page: Page, path: str) -> bool:
    return path.startswith(page.imported.split()[1] + ".") and not page.path.startswith("reference/nn/")


def _lines(page: Page, places: dict[str, str]) -> Iterator[str]:
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
        if _is_of_a_class_beside(name, page):
            yield "      inherited_members: false\n"


def _is_of_a_class_beside(name: Name, page: Page) -> bool:
    """Whether what a class inherits is described on the same page, with another class."""
    bases = set(inspect.getmro(name.value)[1:]) if inspect.isclass(name.value) else set()
    return not bases.isdisjoint([other.value for other in page.names if inspect.isclass(other.value)])
