"""The gallery: a page for each script of examples/, with its picture, its source and its graph."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from . import DOCS, ROOT, links

FEW = 40
"""Steps that an example is run with where its result does not matter."""
TITLES = {
    "allen_cahn": "Sharp fronts",
    "boundary_layer": "Points where the residual is large",
    "burgers": "Burgers' equation",
    "cavity": "A flow in a cavity",
    "data_cleaning": "Wrong labels, found by a gradient through training",
    "data_parallel": "Processes that train together",
    "derivatives_of_sin": "Ten derivatives of sin",
    "digits": "Digits that are asked for",
    "equinox_spectrum": "Spectrum of a Hessian, with Equinox",
    "fermions": "Fermions in a trap, with Flax",
    "flax_gan": "An adversarial network, with Flax",
    "flax_pinn": "A beam that swings, with Flax",
    "force_matching": "Forces of atoms",
    "gauss_newton": "Equations to many digits",
    "gradient_penalty": "A penalty on gradients, as in nnabla",
    "hessian_spectrum": "Spectrum of a Hessian",
    "high_dimensions": "A Laplacian in 100 dimensions",
    "hyperparameters": "Gradients through trained weights",
    "interatomic_potential": "Stress and Hessians of a crystal",
    "korteweg_de_vries": "A soliton",
    "kuramoto_sivashinsky": "The Kuramoto-Sivashinsky equation",
    "mean_flow": "Generation in one step",
    "minimal_surface": "A soap film, by a sparse Hessian",
    "nth_derivative_of_sin": "The tenth derivative, as in nnabla",
    "operator_network": "Solutions from any initial wave",
    "pictures": "Pictures of graphs",
    "recurrent_critic": "A recurrent critic",
}
PICTURES = {"pictures": "plots"}
"""Of scripts that draw several pictures the one for the gallery."""


class Example(NamedTuple):
    """A script."""

    name: str
    title: str
    text: str
    """What it says of itself."""
    source: str

    @property
    def picture(self) -> str | None:
        """Where its picture is kept, below `docs/`; None if it draws none."""
        path = f"images/{PICTURES.get(self.name, self.name)}.png"
        return path if (DOCS / path).exists() else None

    @property
    def page(self) -> str:
        """Where its page is, below `docs/`, were it there."""
        return f"examples/{self.name}.md"

    @property
    def has_steps(self) -> bool:
        """Whether it takes `--steps`."""
        return "script.main(" in self.source or '"--steps"' in self.source


def examples() -> list[Example]:
    """Every script, those with pictures first."""
    found = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        if path.stem in links.SHARED:
            continue
        source = path.read_text(encoding="utf-8")
        text = ast.get_docstring(ast.parse(source)) or ""
        found.append(Example(path.stem, TITLES.get(path.stem, path.stem.replace("_", " ").capitalize()), text, source))
    return sorted(found, key=lambda example: example.picture is None)


def run(example: Example, folder: Path, full: bool) -> str:
    """Run an example, which leaves its picture and its graph in a folder.

    Args:
        example: The script.
        folder: Where to, which is there.
        full: Whether it takes all of its steps, and must come to a good result.

    Returns:
        What is wrong: its output, if it does not end as it should; else nothing.
    """
    arguments = ["--steps", str(FEW)] if example.has_steps and not full else []
    if "import script\n" in example.source:
        arguments += ["--out", str(folder)]
    command = [sys.executable, "-m", "docs_site.example_run", f"examples/{example.name}.py", str(folder), *arguments]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    unfinished = not full and done.returncode == 1 and "which is meant for" in done.stdout
    if done.returncode == 0 or unfinished:
        return ""
    return f"examples/{example.name}.py ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"


def gallery(graphs: dict[str, str]) -> dict[str, str]:
    """The Markdown of the gallery and of each example's page, by their paths.

    Args:
        graphs: The file that shows an example's graph, below `docs/`, by the example's name.
    """
    cards = []
    pages = {}
    for example in examples():
        first = example.text.partition("\n\n")[0].replace("\n", " ")
        picture = f"    [![{example.title}]({example.picture})]({example.page})\n\n" if example.picture else ""
        graph = f"    [Its graph]({graphs[example.name]})\n\n" if example.name in graphs else ""
        cards.append(f"-   [**{example.title}**]({example.page})\n\n{picture}    {first}\n\n{graph}")
        pages[example.page] = _page(example, graphs.get(example.name))
    return {"gallery.md": f'{_GALLERY}<div class="grid cards" markdown>\n\n{"".join(cards)}\n</div>\n', **pages}


_GALLERY = """\
# Gallery

Scripts of the folder `examples/`, with the pictures that they draw; [another page](examples.md) tells what each
computes, what its result is compared with, and how far off it is. Each page has the source, and the graph that is
trained.

"""


def _page(example: Example, graph: str | None) -> str:
    first, _, rest = example.text.partition("\n\n")
    parts = [f"# {example.title}", first]
    if rest:
        parts.append(_paragraphs(rest))
    if example.picture:
        parts.append(f"![{example.title}](../{example.picture})")
    if graph is not None:
        parts.append(f"[Its graph](../{graph}){{ .md-button }}")
    parts.append(f"```\npython examples/{example.name}.py\n```")
    parts.append(f'```python title="examples/{example.name}.py"\n{example.source}```')
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> str:
    """Paragraphs of a docstring; what is indented there is code."""
    blocks = text.split("\n\n")
    return "\n\n".join([f"```\n{textwrap.dedent(b)}\n```" if b.startswith("    ") else b for b in blocks])
