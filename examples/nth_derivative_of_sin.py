"""The tenth derivative of sin, and its gradient: the second example of `nnabla.grad`, with other imports."""

import numpy as np

import nngrad as nn
import nngrad.functions as F
from backward_registry import show_registry

x = nn.Variable.from_numpy_array(np.random.randn(2, 2)).apply(need_grad=True)
x.grad.zero()
y = F.sin(x)


def grad(y, x, n=1):
    dx = [y]
    for _ in range(n):
        dx = nn.grad([dx[0]], [x])
    return dx[0]


dnx = grad(y, x, n=10)
dnx.forward()
print(np.allclose(-np.sin(x.d), dnx.d))
dnx.backward()
print(np.allclose(-np.cos(x.d), x.g))

# What is known of each op's backward rule
show_registry()
