"""What is imported when: a gradient and its value need the kernel alone; each name of `nn` is where it is asked for."""

import ast
import inspect
import json
import subprocess
import sys

import pytest

import nngrad as nn

GRADIENT = """
import json, sys
import nngrad as nn
import nngrad.functions as F
x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
(g,) = nn.grad([F.sum(F.tanh(x))], [x])
(h,) = nn.grad([F.sum(g)], [x])
assert h.d.shape == (2,)
x.grad.zero()
F.sum(g**2).backward()
print(json.dumps(sorted({name.split(".")[1] for name in sys.modules if name.startswith("nngrad.")})))
"""


def test_a_gradient_and_its_value_import_no_room() -> None:
    done = subprocess.run([sys.executable, "-c", GRADIENT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rooms = {"command", "context", "parallel", "files", "inspection", "jax", "nnabla", "parameter",
             "parametric_functions", "solvers", "torch", "training"}  # fmt: skip
    assert not rooms.intersection(json.loads(done.stdout))


def test_names_are_imported_from_where_checkers_of_types_see_them() -> None:
    (block,) = [node for node in ast.parse(inspect.getsource(nn)).body
                if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]  # fmt: skip
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            seen[alias.asname or alias.name] = (node.module, alias.name)
    for name, (module, original) in seen.items():
        if name in nn._MODULES:
            assert nn._MODULES[name] == ".".join(filter(None, (module, original)))
        else:
            assert (nn._MODULE_OF[name], name) == (module, original)
    assert seen.keys() == nn._MODULES.keys() | nn._MODULE_OF.keys()


@pytest.mark.parametrize("name", nn.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(nn, name) is getattr(nn, name)


def test_a_name_that_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="did you mean 'grad'"):
        _ = nn.gradd
