"""What can be pickled and copied, and what says that it cannot."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad import Variable


def again_pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def parameters() -> dict[str, Variable]:
    return {"a/w": Variable.from_numpy_array(np.arange(4.0).reshape(2, 2), need_grad=True),
            "b": Variable.from_numpy_array(np.ones(2), need_grad=True)}


@pytest.mark.parametrize("copied", [again_pickled, copy.deepcopy, copy.copy])
def test_contexts(copied: Callable[[Any], Any]) -> None:
    context = copied(nn.Context(["cpu:float", "cudnn:float"], device_id=0))
    assert context == nn.Context("cpu") and (context.backend, context.device_id) == ("cpu", "0")
    with nn.context_scope(context):
        assert F.exp(Variable((2,))).d.tolist() == [1, 1]


@pytest.mark.parametrize("copied", [again_pickled, copy.deepcopy, copy.copy])
def test_executables_and_solvers_say_that_they_cannot_be_pickled(copied: Callable[[Any], Any]) -> None:
    params = parameters()
    loss = F.sum(params["a/w"] ** 2) + sum([F.sum(p) for p in params.values()])
    with pytest.raises(TypeError, match=r"cannot pickle or copy a training step.*nn\.train_step in the process"):
        copied(nn.train_step(loss, params, S.Sgd()))
    with pytest.raises(TypeError, match=r"compiled function cannot be pickled or copied.*nn\.compile in the process"):
        copied(nn.compile(loss, [params["a/w"]]))
    solver = S.Adam()
    solver.set_parameters(params)
    with pytest.raises(TypeError, match="cannot pickle or copy a solver"):
        copied(solver)
