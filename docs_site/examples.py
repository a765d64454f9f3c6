"""The gallery: a page for each script of examples/, with its picture and its source."""

from __future__ import annotations

import ast
import textwrap
from typing import NamedTuple

from . import DOCS, ROOT, links

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


def gallery() -> dict[str, str]:
    """The Markdown of the gallery and of each example's page, by their paths."""
    cards = []
    for example in examples():
        first = example.text.partition("\n\n")[0].replace("\n", " ")
        picture = f"    [![{example.title}]({example.picture})]({example.page})\n\n" if example.picture else ""
        cards.append(f"-   [**{example.title}**]({example.page})\n\n{picture}    {first}\n\n")
    gallery = f'{_GALLERY}<div class="grid cards" markdown>\n\n{"".join(cards)}\n</div>\n'
    return {"gallery.md": gallery, **{example.page: _page(example) for example in examples()}}


_GALLERY = """\
# Gallery

Scripts of the folder `examples/`, with the pictures that they draw; [another page](examples.md) tells what each
computes, what its result is compared with, and how far off it is. Each page has the source.

"""


def _page(example: Example) -> str:
    first, _, rest = example.text.partition("\n\n")
    parts = [f"# {example.title}", first]
    if rest:
        parts.append(_paragraphs(rest))
    if example.picture:
        parts.append(f"![{example.title}](../{example.picture})")
    parts.append(f"```\npython examples/{example.name}.py\n```")
    parts.append(f'```python title="examples/{example.name}.py"\n{example.source}```')
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> str:
    """Paragraphs of a docstring; what is indented there is code."""
    blocks = text.split("\n\n")
    return "\n\n".join([f"```\n{textwrap.dedent(b)}\n```" if b.startswith("    ") else b for b in blocks])
