"""A language model of characters: two LSTM layers, states that go on, truncated backpropagation."""

import numpy as np

import nngrad.nnabla as nn
import nngrad.nnabla.functions as F
import nngrad.nnabla.parametric_functions as PF
import nngrad.nnabla.solvers as S

text = "the cat sat on the mat, the dog sat on the log; " * 8
letters = sorted(set(text))
codes = np.array([letters.index(c) for c in text])
batch, length, units, words = 4, 6, 12, len(letters)
history = {"loss": [], "perplexity": [], "state": []}


def model(tokens, states):
    """The logits of what comes next, and the states after the last token."""
    embedded = PF.embed(tokens, words, units, name="embed")
    outputs = []
    for t in range(length):
        h = embedded[:, t]
        after = []
        for i, (h0, c0) in enumerate(states):
            h, c = PF.lstm_cell(h, h0, c0, units, name=f"lstm{i}")
            after.append((h, c))
        states = after
        outputs.append(h)
    h = F.reshape(F.stack(*outputs, axis=1), (batch * length, units))
    return PF.affine(h, words, name="output"), states


def start(seed):
    rng = np.random.RandomState(seed)
    for _, w in sorted(nn.get_parameters().items()):
        w.d = rng.uniform(-0.3, 0.3, w.shape)


tokens, targets = nn.Variable((batch, length)), nn.Variable((batch, length))
states = [(nn.Variable((batch, units)), nn.Variable((batch, units))) for _ in range(2)]
logits, after = model(tokens, states)
loss = F.mean(F.softmax_cross_entropy(logits, F.reshape(targets, (batch * length, 1))))
for h, c in after:
    h.persistent = c.persistent = True

start(41)
solver = S.Sgd(1.0)
solver.set_parameters(nn.get_parameters())

rows = codes[: len(codes) // batch * batch].reshape(batch, -1)
for _ in range(2):
    total, parts = 0.0, 0
    for h0, c0 in states:
        h0.data.zero()
        c0.data.zero()
    for at in range(0, 5 * length, length):
        tokens.d = rows[:, at : at + length]
        targets.d = rows[:, at + 1 : at + length + 1]
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.clip_grad_by_norm(0.5)
        solver.update()
        for (h0, c0), (h, c) in zip(states, after, strict=True):  # the gradient stops here, the states go on
            h0.d, c0.d = h.d.copy(), c.d.copy()
        total, parts = total + float(loss.d), parts + 1
        history["loss"].append(float(loss.d))
    history["perplexity"].append(float(np.exp(total / parts)))
    history["state"].append(float(np.abs(states[-1][1].d).mean()))
    solver.set_learning_rate(solver.learning_rate() * 0.8)
