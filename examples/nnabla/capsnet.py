"""A capsule network: routing by agreement, a margin loss and a reconstruction that regularises, at a reduced size."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.initializer as I
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S
from nngrad.nnabla.parameter import get_parameter_or_create

batch, side, classes, routings, steps = 4, 14, 3, 3, 4
history = {"loss": [], "margin": [], "reconstruction": [], "error": []}
rng = np.random.RandomState(71)


def squash(s, axis):
    """A vector of the same direction, whose length is between 0 and 1."""
    norm_sq = F.sum(s**2, axis=axis, keepdims=True)
    return s * (norm_sq / (1.0 + norm_sq)) / F.pow_scalar(norm_sq + 1e-9, 0.5)


def primary_capsules(x, channels=4, dims=4):
    """Vectors of `dims` numbers at each place: (batch, capsules, dims)."""
    h = F.relu(PF.convolution(x, 12, (5, 5), name="conv1"))
    h = PF.convolution(h, channels * dims, (5, 5), stride=(2, 2), name="primary")
    b, _, height, width = h.shape
    h = F.transpose(F.reshape(h, (b, channels, dims, height, width)), (0, 1, 3, 4, 2))
    return squash(F.reshape(h, (b, channels * height * width, dims)), axis=2)


def digit_capsules(u, out_dims=5):
    """Each capsule below votes for those above; what agrees counts more in the next round."""
    b, n, dims = u.shape
    w_init = I.NormalInitializer(0.3, rng=rng)
    w = get_parameter_or_create("digits/W", (1, n, classes, out_dims, dims), w_init)
    u = F.broadcast(F.reshape(u, (b, n, 1, 1, dims)), (b, n, classes, out_dims, dims))
    votes = F.sum(F.broadcast(w, u.shape) * u, axis=4)  # b, n, classes, out_dims
    votes_fixed = F.identity(votes)
    votes_fixed.need_grad = False
    logits = F.constant(0, (b, n, classes, 1))
    for i in range(routings):
        c = F.broadcast(F.softmax(logits, axis=2), votes.shape)
        last = i == routings - 1
        v = squash(F.sum(c * (votes if last else votes_fixed), axis=1, keepdims=True), axis=3)
        if not last:
            logits = logits + F.sum(votes_fixed * F.broadcast(v, votes.shape), axis=3, keepdims=True)
    return F.reshape(v, (b, classes, out_dims))


def reconstruction(v, one_hot, pixels):
    masked = F.reshape(v * F.broadcast(F.reshape(one_hot, (batch, classes, 1)), v.shape), (batch, -1))
    h = F.relu(PF.affine(masked, 16, name="decoder1"))
    return F.sigmoid(PF.affine(h, pixels, name="decoder2"))


def margin_loss(lengths, one_hot):
    present = one_hot * F.relu(0.9 - lengths) ** 2
    absent = 0.5 * (1.0 - one_hot) * F.relu(lengths - 0.1) ** 2
    return F.mean(F.sum(present + absent, axis=1))


def draw():
    """A bar, a cross or a square somewhere, with noise."""
    labels = rng.randint(0, classes, batch)
    images = 0.2 * rng.rand(batch, 1, side, side)
    for image, label, at in zip(images, labels, rng.randint(2, side - 7, (batch, 2)), strict=True):
        part = image[0, at[0] : at[0] + 5, at[1] : at[1] + 5]
        part[:, 2] += 0.8 * (label < 2)
        part[2, :] += 0.8 * (label == 1)
        part[[0, -1], :] += 0.8 * (label == 2)
    return images, labels.reshape(-1, 1)


x, t = nn.Variable((batch, 1, side, side)), nn.Variable((batch, 1))
one_hot = F.reshape(F.one_hot(t, (classes,)), (batch, classes))
capsules = digit_capsules(primary_capsules(x))
lengths = F.pow_scalar(F.sum(capsules**2, axis=2) + 1e-9, 0.5)
loss_margin = margin_loss(lengths, one_hot)
pixels = reconstruction(capsules, one_hot, side * side)
loss_pixels = F.mean(F.sum(F.squared_error(pixels, F.reshape(x, pixels.shape)), axis=1))
loss = loss_margin + 0.0005 * side * side * loss_pixels
error = F.mean(F.top_n_error(lengths, t))
for part in (loss_margin, loss_pixels, error):
    part.persistent = True

for name, w in sorted(nn.get_parameters().items()):
    if name.endswith("/W") and name != "digits/W":
        fan_in = np.prod(w.shape[1:]) if w.ndim == 4 else w.shape[0]
        w.d = rng.randn(*w.shape) * np.sqrt(2 / fan_in)
solver = S.Adam(1e-3)
solver.set_parameters(nn.get_parameters())

for _ in range(steps):
    x.d, t.d = draw()
    nn.forward_all([loss, error])
    solver.zero_grad()
    loss.backward(clear_buffer=True)
    solver.update()
    history["loss"].append(float(loss.d))
    history["margin"].append(float(loss_margin.d))
    history["reconstruction"].append(float(loss_pixels.d))
    history["error"].append(float(error.d))
