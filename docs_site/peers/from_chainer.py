"""The page about Chainer's functions, and where they are here."""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from .facts import lines_of, resolve

_NAME = re.compile(r"\b(?:F|nn)\.\w+")

_TEXT = """\
# From Chainer

Most functions of Chainer are here. If nnabla has a function of the same name, this one follows nnabla; otherwise it
follows Chainer and takes its arguments. These differences apply to all functions:

- **Derivatives of any order.** Many of Chainer's functions can be differentiated only once or twice. Here every
  function with a derivative has derivatives of all orders.
- **Values.** nngrad computes a graph when you read a value or call `forward()`, not function by function;
  `nn.auto_forward()` comes closer to Chainer's behaviour. `x.array` is `x.d`, and `x.backward()`, `x.grad_var`,
  `x.cleargrad()`, `x.addgrad(y)`, `x.creator`, `x.unchain()`, `x.unchain_backward()`, `nn.grad` and
  `nn.FunctionNode` exist here too.
- **Training.** There is no `chainer.config.train`: functions behave the same in training and in inference. `F.dropout`
  always drops, so leave it out of the graph for inference.

```python
import numpy as np

import nngrad as nn
import nngrad.functions as F

chains = [np.ones((3, 2)), np.zeros((1, 2))]                   # of 3 steps and of 1, with 2 labels
scores = F.transpose_sequence(chains)                          # step by step: two chains, then one
labels = F.transpose_sequence([np.array([0, 1, 1]), np.array([0])])
cost = nn.Variable.from_numpy_array(np.eye(2))
loss = F.crf1d(cost, scores, labels)
(g,) = nn.grad([loss], [cost])
(gg,) = nn.grad([F.sum(g * g)], [cost])
print(loss.d.round(4), gg.d.shape)
```
```text
1.5064 (2, 2)
```

## Functions
All functions of `chainer.functions` 7.8.1. Where the last column is empty, usage is the same.
"""


class ChainerFunction(NamedTuple):
    """A function of `chainer.functions`, and where it is here."""

    section: str
    """The part of Chainer's reference that it is in."""
    name: str
    here: str
    """An expression; empty if it is not here."""
    differs: str
    """What is different, or why it is not here."""


def chainer_functions() -> list[ChainerFunction]:
    """All functions of Chainer 7.8.1. In the file, one without a place is here by its own name, unless its note says
    that it is not here; one whose place is not there yet has none."""
    functions = []
    for line in lines_of("chainer.csv"):
        name, here, differs = line["function"], line["here"], line["differs"]
        if not differs.startswith("not here"):
            here = here or f"F.{name}"
            if not is_there(here):
                here, differs = "", "not here yet"
        functions.append(ChainerFunction(line["section"], name, here, differs))
    return functions


def is_there(expression: str) -> bool:
    """Whether all names of `F` and `nn` in an expression are those of something."""
    return all([resolve(name) for name in _NAME.findall(expression)])


def from_chainer() -> str:
    """The page."""
    parts = [_TEXT]
    for section, functions in itertools.groupby(chainer_functions(), key=lambda function: function.section):
        parts.append(f"\n### {section.capitalize()}\n| Chainer | here | what differs |\n| --- | --- | --- |\n")
        for each in functions:
            parts.append(f"| `{each.name}` | {f'`{each.here}`' if each.here else ''} | {each.differs} |\n")
    return "".join(parts)
