"""An encoder like BERT's: masked attention, two losses and a warm-up of the rate."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S

batch, length, words, units, heads, layers, steps = 3, 8, 15, 12, 2, 2, 6
warmup, rate = 3, 2e-3
history = {"loss": [], "masked words": [], "next sentence": []}
rng = np.random.RandomState(81)


def linear(h, n, name):
    return PF.affine(h, n, base_axis=2, name=name)


def split(h):
    """(batch, length, units) as (batch, heads, length, units of a head)."""
    return F.transpose(F.reshape(h, (batch, length, heads, units // heads)), (0, 2, 1, 3))


def attention(h, mask):
    with nn.parameter_scope("attention"):
        q, k, v = (split(linear(h, units, name)) for name in ("query", "key", "value"))
        scores = F.batch_matmul(q, k, transpose_b=True) * (1.0 / np.sqrt(units // heads))
        scores = scores + F.broadcast((1.0 - mask) * -10000.0, scores.shape)
        h = F.batch_matmul(F.softmax(scores, axis=3), v)
        h = F.reshape(F.transpose(h, (0, 2, 1, 3)), (batch, length, units))
        return linear(h, units, "output")


def layer(h, mask, scope):
    with nn.parameter_scope(scope):
        h = PF.layer_normalization(h + attention(h, mask), batch_axis=(0, 1), name="norm1")
        f = linear(F.gelu(linear(h, 2 * units, "fc1")), units, "fc2")
        return PF.layer_normalization(h + f, batch_axis=(0, 1), name="norm2")


def encoder(tokens, segments, mask):
    with nn.parameter_scope("bert"):
        positions = nn.Variable.from_numpy_array(np.arange(length).reshape(1, length))
        h = PF.embed(tokens, words, units, name="words") + PF.embed(segments, 2, units, name="segments")
        h = h + F.broadcast(PF.embed(positions, length, units, name="positions"), h.shape)
        h = PF.layer_normalization(h, batch_axis=(0, 1), name="norm")
        mask = F.reshape(mask, (batch, 1, 1, length))
        for i in range(layers):
            h = layer(h, mask, f"layer{i}")
        return h


def heads_of(h, table):
    """The logits of each word, by the table of embeddings, and of the next sentence."""
    with nn.parameter_scope("heads"):
        guess = PF.layer_normalization(F.gelu(linear(h, units, "fc")), batch_axis=(0, 1), name="norm")
        logits = F.affine(guess, F.transpose(table, (1, 0)), base_axis=2)
        pooled = F.tanh(PF.affine(h[:, 0], units, name="pool"))
        return logits, PF.affine(pooled, 2, name="next")


def draw():
    """Two halves that count upwards, the second on from the first or not; the ends of some rows are padding."""
    first, go_on = rng.randint(2, 5, (batch, 1)), rng.randint(0, 2, (batch, 1))
    half = np.arange(length // 2)
    rows = np.concatenate([first + half, first + half + np.where(go_on, length // 2, 1)], axis=1)
    mask = (np.arange(length) < rng.randint(length - 2, length + 1, (batch, 1))).astype(np.float32)
    guessed = (rng.rand(batch, length) < 0.3) * mask
    guessed[:, 1] = 1
    return np.where(guessed, 1, rows), mask, rows, guessed, go_on


tokens, segments = nn.Variable((batch, length)), nn.Variable((batch, length))
mask, words_true = nn.Variable((batch, length)), nn.Variable((batch, length, 1))
guessed, next_true = nn.Variable((batch, length, 1)), nn.Variable((batch, 1))
h = encoder(tokens, segments, mask)
logits, logits_next = heads_of(h, nn.get_parameters()["bert/words/embed/W"])
loss_words = F.sum(guessed * F.softmax_cross_entropy(logits, words_true, axis=2)) / F.sum(guessed)
loss_next = F.mean(F.softmax_cross_entropy(logits_next, next_true))
loss = loss_words + loss_next
loss_words.persistent = loss_next.persistent = True

for name, w in sorted(nn.get_parameters().items()):
    if name.endswith("/W"):
        w.d = 0.3 * rng.randn(*w.shape)
solver = S.AdamW(rate, wd=0.01)
solver.set_parameters(nn.get_parameters())
segments.d = np.repeat([[0, 1]], length // 2, axis=1)

for i in range(steps):
    tokens.d, mask.d, rows, chosen, next_true.d = draw()
    words_true.d, guessed.d = rows[:, :, np.newaxis], chosen[:, :, np.newaxis]
    solver.set_learning_rate(rate * min(1.0, (i + 1) / warmup))
    loss.forward(clear_no_need_grad=True)
    solver.zero_grad()
    loss.backward(clear_buffer=True)
    solver.clip_grad_by_norm(1.0)
    solver.update()
    history["loss"].append(float(loss.d))
    history["masked words"].append(float(loss_words.d))
    history["next sentence"].append(float(loss_next.d))
