"""The pages of the documentation that are made of facts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import nngrad.functions as F
from docs_site import DOCS
from nngrad.command.ops import functions_of_family, order_of_function

from .differentiable import PEERS, capability, peers_of
from .facts import lines_of, nnabla_names
from .from_chainer import from_chainer
from .primitives import STATES, primitives

_FROM_NNABLA = """\
# From nnabla

In most programs written for nnabla only the name of the package changes, in the lines that import it:

| nnabla | here |
| --- | --- |
| `import nnabla as nn` | `import nngrad.nnabla as nn` |
| `import nnabla.functions as F` | `import nngrad.nnabla.functions as F` |
| `import nnabla.parametric_functions as PF` | `import nngrad.nnabla.parametric_functions as PF` |
| `import nnabla.solvers as S` | `import nngrad.nnabla.solvers as S` |
| `import nnabla.initializer as I` | `import nngrad.nnabla.initializer as I` |
| `import nnabla.communicators as C` | `import nngrad.nnabla.communicators as C` ([page](communicators.md)) |
| `from nnabla.monitor import Monitor` | `from nngrad.nnabla.monitor import Monitor` |

A few things [differ on purpose](departures.md). The tables below list every public name of nnabla 1.39 and its
counterpart here; its modules come last in the first table. Importing a module or a name that is not here raises an
`ImportError`, and reading it an `AttributeError`, that says what to use instead. [functions.md](functions.md) shows
how often each function can be differentiated, here and elsewhere.

## Programs that run in both
The programs in [examples/nnabla](../examples/nnabla) also run in nnabla 1.36: only `nngrad.nnabla` in their import
lines becomes `nnabla`. `examples/nnabla/record.py` makes this change and records nnabla's results in `losses.json`; the
tests compare them with nngrad's, step by step. All figures agree to 1e-4, most to 1e-6; both compute in float32.

| program | what it uses |
| --- | --- |
| `lenet.py` | data iterators, monitors, weight decay, evaluation, parameters in .h5 files |
| `resnet.py` | batch normalisation with `batch_stat` True and False, learning-rate schedules, saved parameters |
| `dcgan.py` | deconvolutions, two solvers over parameter scopes, tiled images |
| `wgan_gp.py` | a gradient penalty by `nn.grad` |
| `stargan.py` | three domains: adversarial, classification and cycle losses, a gradient penalty |
| `igr.py` | an implicit surface: normals and an eikonal loss by `nn.grad` |
| `maml.py` | inner steps by `nn.grad`, `backward` through them, a graph built anew for each step |
| `vae.py` | reparameterised samples, initialisers with a generator of their own |
| `vat.py` | an adversarial direction by `backward` with respect to noise |
| `lstm_lm.py` | truncated backpropagation: carried states, clipped gradients |
| `capsnet.py` | routing by agreement, with votes that block gradients |
| `bert.py` | masked attention, shared embeddings, AdamW with a warm-up |

Two habits of such programs cause a warning here. An input that has `need_grad` only because nnabla's `nn.grad`
requires it looks untrained to the solver; nngrad's `nn.grad` does not need it. And a float64 array stays float64,
unless the default context has type 'float', as after `nn.set_default_context(get_extension_context("cpu"))`.

Two more things make figures differ from nnabla's. Adam divides by the size of the gradient, so a parameter whose
gradient is 0 up to rounding, like the last bias of a Wasserstein critic, moves by the full learning rate in a direction
that rounding decides. And `y.get_unlinked_variable()` shares a buffer that nnabla's `clear_buffer=True` may free or
overwrite; to stop a gradient within one graph, set `need_grad = False` on `F.identity(y)`.
"""

_FUNCTIONS = """\
# Functions, and how often they can be differentiated

Every function of `nngrad.functions`, as `nngrad ops` lists them. The column "here" says how often nngrad can
differentiate it:

- *any*: any number of times, by the true derivative.
- *estimate*: any number of times, by nnabla's estimate of the derivative, such as a straight-through gradient.
- *none*: not at all, since it is constant almost everywhere, or random.
- *by its parts*: as often as the functions it is composed of.

For the other libraries, *yes* means that gradients of gradients exist, *once* that the gradient cannot be
differentiated again, *no* that there is no gradient; an empty cell means that the library has no such function. If the
name differs, it follows. Versions: nnabla 1.39, Chainer 7.8, PyTorch 2.13 and JAX 0.10.
"""

_PRIMITIVES = """\
# How nngrad handles JAX primitives

`nn.from_jax`, and with it every function of `nngrad.jax`, traces a function to JAX primitives. Each of these is:

"""


_OTHER_VALUES = """\
## Functions with other values
Some functions have the name of one of PyTorch's, or stand beside it in [functions.md](functions.md), and return other
values for the same arguments: mostly those of nnabla's function. The third column has expressions that return
PyTorch's. `TF` is `torch.nn.functional`; `x` is images (1, 8, 4, 4), and other letters are small arrays.

"""


def pages() -> dict[str, str]:
    """The pages by their names in `docs/`."""
    return {
        "from_chainer.md": from_chainer(), "from_nnabla.md": _from_nnabla(), "from_pytorch.md": _from_pytorch(),
        "functions.md": _functions(), "primitives.md": _primitives(),
    }  # fmt: skip


def _primitives() -> str:
    states = "".join([f"- **{state}** {what}.\n" for state, what in STATES.items()])
    rows = [(f"`{p.name}`", p.state, ", ".join(p.versions)) for p in primitives()]
    return f"{_PRIMITIVES}{states}\n{_table(('primitive', 'status', 'versions of JAX'), rows)}"


def _from_nnabla() -> str:
    parts = [_FROM_NNABLA]
    for module, places in itertools.groupby(nnabla_names(), key=lambda place: place.module):
        rows = [(f"`{p.name}`", f"`{p.here}`" if p.here else "", p.note) for p in places]
        parts.append(f"## {module}\n{_table(('name', 'here', 'note'), rows)}")
    return "\n".join(parts)


def _from_pytorch() -> str:
    """The page as it is, with its table of other values made anew."""
    before, heading, after = (DOCS / "from_pytorch.md").read_text(encoding="utf-8").partition(_OTHER_VALUES)
    rows = [
        (*[f"`{line[column]}`" if line[column] else "" for column in ("pytorch", "here", "same")], line["differs"])
        for line in lines_of("pytorch.csv")
    ]
    titles = ("PyTorch", "the same arguments here", "PyTorch's values here", "what differs")
    return f"{before}{heading}{_table(titles, rows)}{after[after.index(chr(10) * 2) + 1 :]}"


def _functions() -> str:
    parts = [_FUNCTIONS]
    for family in F.FAMILIES:
        rows = [(f"`{name}`", order_of_function(name), *_cells(name)) for name in functions_of_family(family)]
        title = family.replace("_", " ").capitalize()
        parts.append(f"## {title}\n{_table(('function', 'here', *PEERS.values()), rows)}")
    return "\n".join(parts)


def _cells(name: str) -> list[str]:
    cells = []
    for peer, entry in peers_of(name).items():
        there = entry.partition(":")[0]
        cell = f"{capability(entry)} `{there}`" if there not in ("", name) else capability(entry)
        if peer == "pytorch" and name in {line["function"] for line in lines_of("pytorch.csv")}:
            cell += ", [other values](from_pytorch.md#functions-with-other-values)"
        cells.append(cell)
    return cells


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join([f"| {' | '.join(line)} |\n" for line in lines])
