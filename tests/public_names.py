"""The public names and their signatures, as `tests/data/public_names.txt` records them.

    python -m tests.public_names

writes that file: it accepts what has changed. A signature has no annotations, which may become more precise.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs_site import names

RECORDED = Path(__file__).with_name("data") / "public_names.txt"
MODULES = (
    "nnabla.function_node", "nnabla.python_function", "nnabla.monitor", "nnabla.ext_utils",
    "nnabla.utils.data_iterator", "nnabla.utils.data_source", "nnabla.utils.data_source_implements",
    "nnabla.utils.data_source_loader", "nnabla.utils.image_utils", "nnabla.utils.learning_rate_scheduler",
    "nnabla.utils.load", "nnabla.utils.nnp_graph", "nnabla.utils.save",
)  # fmt: skip
"""Modules where nnabla has them, which the reference has no pages for."""


def main() -> None:
    """Accept what the names and signatures are now."""
    RECORDED.write_text("".join([f"{line}\n" for line in public_names()]), encoding="utf-8")
    print(f"{RECORDED} has {len(public_names())} names")


def public_names() -> list[str]:
    """A line for each public name, and for each public attribute of a public class."""
    found = {name.shown: name.value for page in names.pages() for name in page.names}
    for path in MODULES:
        module = importlib.import_module(f"nngrad.{path}")
        found |= {name.shown: name.value for name in names.names_of(f"nn.{path}", module)}
    classes = {value: shown for shown, value in reversed(found.items()) if inspect.isclass(value)}
    return sorted({line for shown, value in found.items() for line in lines_of(shown, value, classes)})


def lines_of(shown: str, value: Any, classes: Mapping[type, str]) -> Iterator[str]:
    """The line of a name, and those of what it holds if it is a class and does not have from another of `classes`."""
    if not inspect.isclass(value):
        yield shown + signature_of(value) if callable(value) else shown
        return
    bases = [base for base in value.__mro__[1:] if base in classes]
    made = "" if issubclass(value, Exception | enum.Enum) else signature_of(value)
    yield f"class {shown}{made}" + (f" is a {', '.join([classes[base] for base in bases])}" if bases else "")
    for attribute in dir(value):
        found = inspect.getattr_static(value, attribute)
        own = next((c for c in value.__mro__ if attribute in vars(c)), object)
        public = not attribute.startswith("_") or attribute in ("__call__", "__enter__")
        if not public or not own.__module__.startswith(("nngrad", "backward_registry")):
            continue
        if all([inspect.getattr_static(base, attribute, None) is not found for base in bases]):
            is_method = callable(found) or isinstance(found, staticmethod | classmethod)
            yield f"{shown}.{attribute}" + (signature_of(getattr(value, attribute)) if is_method else "")


def signature_of(value: Any) -> str:
    """The parameters of a callable and their defaults; `(...)` where Python cannot tell."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    bare = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else _Shown(p.default))
            for p in parameters]  # fmt: skip
    return str(inspect.Signature(bare))


class _Shown:
    """A default as it is written, without the address of an object."""

    def __init__(self, value: Any) -> None:
        self.text = getattr(value, "__name__", None) or re.sub(r" at 0x\w+", "", repr(value))

    def __repr__(self) -> str:
        return self.text


if __name__ == "__main__":
    main()
