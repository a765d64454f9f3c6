"""What is defined for a while, and goes."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from backward_registry import registry


def node() -> type:
    class Squared(nn.nnabla.FunctionNode):
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def forward(self, x: Any) -> Any:
            self.retain_inputs((0,))
            return self.factor * x * x

        def backward(self, indexes: Any, grad_outputs: Any) -> Any:
            (x,) = self.get_retained_inputs()
            return (grad_outputs[0] * 2 * self.factor * x,)

    return Squared


def recorded() -> type:
    class Squared(nn.nnabla.PythonFunction):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def setup_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].reset_shape(inputs[0].shape, True)

        def forward_impl(self, inputs: Any, outputs: Any) -> None:
            x = inputs[0].data
            outputs[0].data.copy_from(x * x * self.factor)

        def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
            inputs[0].grad.copy_from(outputs[0].grad * inputs[0].data * (2 * self.factor))

    return Squared


def used(cls: type) -> None:
    """Run and differentiate it on every route."""
    x = nn.Variable.from_numpy_array(np.array([1.0, -2.0]), need_grad=True)
    for _ in range(2):
        y = F.sum(cls(1.5)(x))
        y.forward()
        y.backward()
    np.testing.assert_allclose(x.g, 6 * x.d)
    (gx,) = nn.grad([y], [x])
    np.testing.assert_allclose(gx.d, 3 * x.d)
    y.forward(function_post_hook=lambda f: None)  # op by op
    assert y.d == 7.5
    assert nn.count(y).functions == 2
    np.testing.assert_allclose(nn.compile(y, [x])(np.ones(2)), 3.0)


@pytest.mark.parametrize("define", [node, recorded])
def test_a_class_goes_with_all_that_was_kept_of_it(define: Callable[[], type]) -> None:
    gc.collect()  # classes of other tests
    entered, misses = len(registry), nn.executables.info().misses
    cls = define()
    used(cls)
    assert len(registry) > entered and "Squared" in registry
    assert nn.executables.info().misses > misses
    gone = weakref.ref(cls)
    del cls
    gc.collect()
    assert gone() is None
    assert len(registry) == entered and "Squared" not in registry


def test_a_class_lives_as_long_as_a_graph_of_it() -> None:
    x = nn.Variable.from_numpy_array(np.array([1.0, -2.0]), need_grad=True)
    y = F.sum(node()(1.5)(x))
    gc.collect()
    y.backward()
    np.testing.assert_allclose(x.g, 3 * x.d)
    assert nn.grad([y], [x])[0].d.tolist() == [3, -6]
