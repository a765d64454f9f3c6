"""Runs one example as from the command line, and keeps the graph that it trains.

    python -m docs_site.example_run SCRIPT FOLDER [argument ...]

The graph goes to FOLDER as `graph.html`, or as `graph.txt` where the viewer's page has not been built; scripts that
make no graph of their own, since they are written for JAX, leave none. The exit code is that of the script, or FAILED.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import nngrad as nn

FAILED = 70
"""The exit code where the script has ended well enough, and its graph cannot be kept."""
TEMPLATE = files("nngrad") / "inspection" / "viewing" / "page" / "template.html"
"""What `nn.view` makes pages of."""


def main() -> None:
    """Run what the command line says."""
    script, folder, *arguments = sys.argv[1:]
    trained: list[Any] = []
    nn.train_step = _noting(nn.train_step, trained)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    code: Any = 0
    names: dict[str, Any] = {}
    try:
        with nn.source_locations():  # the page tells of each function the line of the script
            names = runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code
    outputs = trained[-1] if trained else _left_behind(names)
    try:
        if outputs:
            _keep(outputs, Path(folder), title=Path(script).name)
    except Exception:
        traceback.print_exc()
        code = FAILED
    sys.exit(code)


def _noting(train_step: Callable[..., Any], trained: list[Any]) -> Callable[..., Any]:
    """`nn.train_step`, which notes the loss and its gradients besides."""

    def noting(loss: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        step = train_step(loss, parameters, *args, **kwargs)
        if isinstance(loss, nn.Variable):
            given = parameters.values() if isinstance(parameters, Mapping) else parameters
            trained.append([loss, *nn.grad([loss], list(given))])
        return step

    return noting


def _left_behind(names: dict[str, Any]) -> list[Any]:
    """The graph of a script without a training step: what it calls its loss, or the derivative that it takes."""
    return [names[name] for name in ("loss", "dnx") if isinstance(names.get(name), nn.Variable)][:1]


def _keep(outputs: list[Any], folder: Path, title: str) -> None:
    view = getattr(nn, "view", None)
    if view is not None and TEMPLATE.is_file():
        view(outputs, folder / "graph.html", title=title)
    else:
        (folder / "graph.txt").write_text(f"{nn.show(outputs)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
