"""The kept figures (`results/*.json`) and the pages made from them: RESULTS.md, and the table of the README.

`python -m benchmarks --write` measures, keeps and makes the pages; `--pages` makes them from what is kept.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from nngrad_command.installation import version_of

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "results"
ON_GPU = KEPT / "gpu"
PAGE = Path(__file__).parent / "RESULTS.md"
README = ROOT / "README.md"
PLOTTED = ("devices", "growth")
"""Files of figures that are drawn, and have no rows."""


class Headline(NamedTuple):
    """A line of the page: one measurement of nngrad beside one or several peers."""

    title: str
    benchmark: str
    what: str
    """The rows of the benchmark that it is made of."""
    peers: tuple[str, ...]
    """How those of the rows begin that are shown; in this order."""
    in_readme: bool = False
    ours: str = ""
    """How nngrad's side of the rows begins, where there are several."""


SECTIONS: dict[str, Sequence[Headline]] = {
    "Higher derivatives": (
        Headline("6th derivative of a tanh network", "derivatives", "run time, order 6",
                 ("nested jax.grad", "jet", "nested jax.jvp"), in_readme=True),
        Headline("10th derivative, first result", "first_result", "10th derivative of a tanh network: first result",
                 ("jitted JAX",), in_readme=True),
        Headline("6th derivative through a loop of 200 steps", "loops",
                 "derivative of order 6, tanh network of 200 steps: step", ("nested jax.grad", "nested jax.jvp")),
        Headline("derivative 6 of a Flax model, by nngrad.jax", "drop_in",
                 "run: derivative 6 of a Flax MLP 1-64-64-64-1, 1024 points", ("nested jax.grad", "jet")),
    ),
    "Gradient penalties": (
        Headline("WGAN-GP critic step, dense", "critic", "critic step, MLP 64-256-256-1, batch 64",
                 ("jax.grad", "PyTorch eager"), in_readme=True),
        Headline("WGAN-GP critic step, convolutional", "critic", "critic step, conv on 3x32x32, batch 16",
                 ("jax.grad NCHW", "PyTorch eager"), in_readme=True, ours="nngrad NCHW"),
        Headline("recurrent critic of 200 steps", "loops", "recurrent critic of 200 steps, gradient penalty: step",
                 ("jax.grad", "PyTorch eager"), in_readme=True),
        Headline("ResNet with a penalty, first result", "first_result",
                 "the ResNet with a gradient penalty: loss and 23 gradients: first result", ("jitted JAX",)),
    ),
    "Physics-informed networks": (
        Headline("Kuramoto-Sivashinsky equation, training step", "physics",
                 "Kuramoto-Sivashinsky step, MLP 2-64-64-64-1, 2,048 points",
                 ("vmap of nested jax.grad", "PyTorch eager"), in_readme=True),
        Headline("sine-Gordon loss in 10,000 dimensions", "stochastic",
                 "sine-Gordon loss and gradient, 10,000 dimensions, 16 directions, batch 100", ("vmap of jet",)),
    ),
    "Operators": (
        Headline("Laplacian of folx's README", "forward_laplacian",
                 "folx's README: silu MLP of 10 layers, 100 particles: run", ("folx",), ours="nngrad, batched"),
        Headline("bilaplacian in 5 dimensions", "order_four", "bilaplacian, MLP 5-128-128-128-1, 512 points",
                 ("collapsed Taylor mode", "nested jax.hessian"), ours="nn.bilaplacian"),
        Headline("gradients of each sample", "per_sample", "gradients of each sample, MLP 32-128-128-10, batch 64",
                 ("jax.vmap of jax.grad", "torch.func"), in_readme=True),
    ),
    "Training": (
        Headline("classifier step", "classifier", "classifier step 64-128-10, batch 64", ("jitted JAX step",)),
        Headline("classifier step, graph rebuilt each time", "classifier",
                 "classifier step 64-128-10, batch 64, graph rebuilt at each step", ("PyTorch eager",)),
        Headline("MAML of 50 inner steps", "loops", "MAML of 50 inner steps: step", ("jax.grad", "PyTorch eager")),
    ),
    "Attention, curvature, operators on functions, potentials": (
        Headline("attention of length 4,096, gradient of a gradient", "attention", "attention, length 4096, order 2",
                 ("jax.nn.dot_product_attention", "PyTorch")),
        Headline("the same, memory", "attention", "attention, length 4096, order 2: temporaries",
                 ("jax.nn.dot_product_attention", "PyTorch")),
        Headline("Gauss-Newton step of a physics-informed network", "curvature",
                 "Gauss-Newton step, Laplacian of MLP 2-48-48-1 at 256 points", ("jax, by hand",)),
        Headline("Hessian of a finite-element energy", "sparse",
                 "Hessian of a finite-element energy, 10082 variables", ("asdex",)),
        Headline("DeepONet, derivatives of order 4", "operator_learning",
                 "DeepONet, order 4, 50 functions, 1000 points: gradient of the loss",
                 ("zero coordinate shift", "jax.experimental.jet")),
        Headline("gradient through 100 steps of training", "training",
                 "100 steps of training, 1,024 samples: hypergradients",
                 ("jax.grad of a scan", "jax, forward over reverse"), ours="nngrad:"),
        Headline("training on the forces of a potential", "potential",
                 "potential, 200 atoms, 4,000 edges: loss and gradients", ("jax:",), ours="nngrad:"),
    ),
    "Memory of a gradient": (
        Headline("64 layers, recomputed by segments", "memory", "64 layers of 256, batch 4096: temporaries",
                 ("plain", "jax.checkpoint", "PyTorch checkpoint"), in_readme=True),
    ),
    "Building graphs": (
        Headline("gradient of a chain of 1,600 functions that comes again", "building",
                 "build grad, chain of 1,600 ops", ("make_jaxpr", "PyTorch eager"), ours="nngrad, again"),
    ),
}  # fmt: skip

_HEAD = """\
# Measured

Each line compares nngrad with a peer that ran in the same process, in turns. A ratio below 1 means that nngrad takes
less. Times are medians. [README.md](README.md) says what each line measures and how to repeat it. All {rows} rows
are in [results/](results).

{machines}
"""
_ON_GPU = """
## On a GPU
{told}. Products are exact to float32
(`jax_default_matmul_precision` is `highest`). Of steps as small as these the time is mostly the host's.

"""
_GROWTH = """
## Growth with the order
The nth derivative of a network of three tanh layers at 1,024 points, by nested `nn.grad` and by what one writes in JAX:

![Nodes of the graph, time to the first result and run time over the orders 1 to 12](../docs/images/growth.png)

## Growth with the devices
A training step compiled for 1 to 256 devices, by the compiler's own counts for the program of one device:

![FLOPs, bytes accessed and bytes sent of a device, over the number of devices](../docs/images/scaling.png)
"""


def keep(path: Path, rows: Iterable[NamedTuple], packages: Iterable[str] = ("torch",)) -> None:
    """Keep what has been measured, with the machine, the versions of `packages` and the date."""
    lines = [json.dumps(r._asdict(), ensure_ascii=False) for r in rows]
    told, today = json.dumps(machine(packages)), json.dumps(datetime.date.today().isoformat())
    head = f' "machine": {told},\n "date": {today},\n'
    path.write_text("{\n" + head + ' "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n", encoding="utf-8")


def machine(packages: Iterable[str] = ("torch",)) -> str:
    """What it ran on, with the versions of nngrad, of JAX, and of those `packages` that are there."""
    found = {name: version_of(name) for name in ("nngrad", "jax", *packages)}
    versions = [f"{name} {version}" for name, version in found.items() if version]
    device = jax.devices()[0]
    cores = f"{os.cpu_count()} {platform.machine()} cores"
    return f"{device.device_kind} ({device.platform}), {cores}, {', '.join(versions)}"


def load(name: str, folder: Path = KEPT) -> dict[str, Any]:
    """What is kept of a benchmark: `machine`, `date` and `rows`."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def write_pages() -> None:
    """Write RESULTS.md and the table of the README."""
    PAGE.write_text(page())
    README.write_text(with_table(README.read_text()))


def page() -> str:
    """The text of RESULTS.md."""
    kept = _kept()
    machines: dict[tuple[str, str], list[str]] = {}
    for name in sorted({line.benchmark for lines in SECTIONS.values() for line in lines}):
        machines.setdefault((kept[name]["date"], kept[name]["machine"]), []).append(name)
    told = "\n".join([f"- {', '.join(ran)}: {date}, {machine}" for (date, machine), ran in sorted(machines.items())])
    text = _HEAD.format(rows=sum([len(each["rows"]) for each in kept.values()]), machines=told)
    for title, lines in SECTIONS.items():
        text += f"\n## {title}\n" + table(lines)
    return text + on_gpu() + _GROWTH


def on_gpu() -> str:
    """The headlines of what was measured on a GPU."""
    kept = _kept(ON_GPU)
    told = "; ".join(sorted({f"{each['date']}, {each['machine']}" for each in kept.values()}))
    lines = [line for lines in SECTIONS.values() for line in lines if line.benchmark in kept]
    return _ON_GPU.format(told=told) + table(lines, ON_GPU)


def everything() -> str:
    """A page with all rows that are kept."""
    text = "# All measurements\n"
    both = [(*item, where) for folder, where in ((KEPT, ""), (ON_GPU, " on a GPU")) for item in _kept(folder).items()]
    for name, kept, where in both:
        text += f"\n## {name.replace('_', ' ').capitalize()}{where}\n{kept['date']}, {kept['machine']}\n\n"
        text += "| what | nngrad | beside | ratio | goal |\n| --- | --- | --- | ---: | ---: |\n"
        for row in kept["rows"]:
            goal = "" if row["goal"] is None else f"≤ {row['goal']:g}"
            text += f"| {row['what']} | {row['ours']} | {row['peer']} | {row['ratio']:.3f} | {goal} |\n"
    return text


def _kept(folder: Path = KEPT) -> dict[str, dict[str, Any]]:
    return {path.stem: load(path.stem, folder) for path in sorted(folder.glob("*.json")) if path.stem not in PLOTTED}


def with_table(text: str) -> str:
    """The README with its table made anew."""
    begin, end = "<!-- speed: made by python -m benchmarks --pages -->\n", "<!-- end of speed -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    chosen = [line for lines in SECTIONS.values() for line in lines if line.in_readme]
    return f"{head}{begin}{table(chosen)}{end}{tail}"


def table(lines: Iterable[Headline], folder: Path = KEPT) -> str:
    """A table of headlines."""
    text = "| | nngrad | beside | ratio |\n| --- | --- | --- | ---: |\n"
    for line in lines:
        rows = rows_of(line, folder)
        ours = rows[0]["ours"].rpartition(": ")[2]
        beside, ratios = "; ".join([r["peer"] for r in rows]), "; ".join([f"{r['ratio']:.2g}" for r in rows])
        text += f"| {line.title} | {ours} | {beside} | {ratios} |\n"
    return text


def rows_of(line: Headline, folder: Path = KEPT) -> list[dict[str, Any]]:
    """The kept rows that a headline shows.

    Raises:
        ValueError: One of them is not kept.
    """
    found = []
    for peer in line.peers:
        fitting = [
            row for row in load(line.benchmark, folder)["rows"]
            if row["what"] == line.what and row["peer"].startswith(peer) and row["ours"].startswith(line.ours)
        ]  # fmt: skip
        if not fitting:
            raise ValueError(f"{folder.name}/{line.benchmark}.json has no row {line.what!r} beside {peer!r}")
        found.append(fitting[0])
    return found
