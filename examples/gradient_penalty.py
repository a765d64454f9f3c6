"""A penalty on the norms of a loss's gradients: the first example of `nnabla.grad`, with other imports."""

import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.context import get_extension_context

# Context
ctx = get_extension_context("cpu")
nn.set_default_context(ctx)

# Input and label
x = nn.Variable.from_numpy_array(np.random.randn(4, 3, 32, 32))
y = nn.Variable.from_numpy_array(np.random.randint(0, 10, 4).reshape(4, 1))

# Network
h = PF.convolution(x, 8, (3, 3), (1, 1), name="conv1")
h = F.relu(h)
h = F.max_pooling(h, (2, 2))
h = PF.convolution(h, 16, (3, 3), (1, 1), name="conv2")
h = F.relu(h)
h = F.max_pooling(h, (2, 2))
p = PF.affine(h, 10, name="pred")
loss = F.mean(F.softmax_cross_entropy(p, y))

# Gradients of the parameters
outputs = [loss]
inputs = nn.get_parameters().values()
grads = nn.grad(outputs, inputs)

# Backward of the loss with the penalty: gradients of gradients
t = 0
gp = sum([(F.sum(g ** 2) ** 0.5 - t) ** 2 for g in grads])
loss += gp
loss.forward()
loss.backward()
