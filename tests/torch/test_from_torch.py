"""`nn.from_torch`: modules of PyTorch's at orders 0 to 3, trained, and refused, beside PyTorch itself."""

from pathlib import Path

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S

torch = pytest.importorskip("torch")
L = torch.nn
TF = torch.nn.functional


class Net(L.Module):
    """Layers by name, and a function of them and of the input."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *given, **options):
        return self.function(self, *given, **options)


def modulated(net, x):
    """A modulated and demodulated convolution, by groups, as StyleGAN2 has it."""
    b, c = x.shape[:2]
    w = net.conv.weight[None] * net.style(x.mean((2, 3)))[:, None, :, None, None]
    w = w * torch.rsqrt(w.square().sum((2, 3, 4), keepdim=True) + 1e-8)
    y = TF.conv2d(x.reshape(1, b * c, *x.shape[2:]), w.flatten(0, 1), padding=1, groups=b)
    return y.view(b, -1, *x.shape[2:]).sigmoid()


def attention(net, x):
    q, k, v = net.qkv(x.flatten(2).transpose(1, 2)).chunk(3, -1)
    return TF.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)


def norms(**given):
    return Net(lambda net, x: net.norm(net.conv(x)).tanh(), conv=L.Conv2d(4, 4, 3), **given)


def kinds():
    """Modules of images of 4 channels and 4 by 4 pixels."""
    conv = L.Conv2d(4, 4, 3, padding=1)
    return {
        "instance norm": norms(norm=L.InstanceNorm2d(4, affine=True)),
        "group norm": norms(norm=L.GroupNorm(2, 4)),
        "batch norm": norms(norm=L.BatchNorm2d(4)),
        "transposed": L.Sequential(L.ConvTranspose2d(4, 3, 3, 2, 1, output_padding=1), L.Softplus()),
        "grouped": L.Sequential(L.Conv2d(4, 6, 3, groups=2, stride=2, padding=1), L.GELU()),
        "depthwise": L.Sequential(L.Conv2d(4, 8, 3, groups=4, dilation=1, padding=1), L.SiLU()),
        "pooling": Net(lambda net, x: (TF.avg_pool2d(net.conv(x), 3, 2, 1) * TF.max_pool2d(x, 2)).cumsum(1) *
                       TF.adaptive_avg_pool2d(x, 2), conv=conv),
        "resizing": Net(lambda net, x: TF.interpolate(net.conv(x).tanh(), scale_factor=2, mode="bilinear") *
                        TF.interpolate(x, scale_factor=2), conv=conv),
        "pixel shuffle": Net(lambda net, x: TF.pixel_shuffle(net.conv(TF.pad(x, (2, 1, 1, 2), mode="reflect")), 2),
                             conv=conv),
        "lstm": Net(lambda net, x: net.lstm(x.flatten(2))[0], lstm=L.LSTM(16, 3, batch_first=True, bidirectional=True)),
        "gru": Net(lambda net, x: net.gru(x[..., 0])[1], gru=L.GRU(4, 3, 2)),
        "residual": Net(lambda net, x: TF.leaky_relu(net.norm(net.conv(x)), 0.2) + x ** 3, conv=conv,
                        norm=L.LayerNorm([4, 4])),
        "modulated": Net(modulated, conv=conv, style=L.Linear(4, 4)),
        "spectral norm": L.Sequential(L.utils.parametrizations.spectral_norm(L.Conv2d(4, 4, 3)), L.ELU()),
        "attention": Net(attention, qkv=L.Linear(4, 12)),
        "transformer": Net(lambda net, x: net.layer(x.flatten(2)), layer=L.TransformerEncoderLayer(16, 2, 8, 0.0)),
        "stops": Net(lambda net, x: (net.conv(x) - x.detach()) ** 3 * x.std((2, 3), keepdim=True) / x.norm(),
                     conv=conv),
    }  # fmt: skip


def exact_batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """`batch_norm` in training mode by elementary functions: the third derivatives of PyTorch's own, and of its
    `layer_norm`, are wrong (github.com/pytorch/pytorch/issues/186256)."""
    if mean is not None:
        with torch.no_grad():
            TORCHS_BATCH_NORM(x, mean, var, None, None, True, momentum, eps)
    over = [0, *range(2, x.ndim)]
    y = (x - x.mean(over, keepdim=True)) * (x.var(over, keepdim=True, correction=0) + eps).rsqrt()
    shape = (1, -1, *[1] * (x.ndim - 2))
    return y if weight is None else y * weight.view(shape) + bias.view(shape)


def exact_instance_norm(x, mean, var, weight, bias, use_input_stats, momentum, eps):
    y = exact_batch_norm(x.flatten(0, 1)[None], None, None, eps=eps).view_as(x)
    return y * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def exact_layer_norm(x, shape, weight, bias, eps):
    over = list(range(-len(shape), 0))
    return (x - x.mean(over, keepdim=True)) * (x.var(over, keepdim=True, correction=0) + eps).rsqrt() * weight + bias


TORCHS_BATCH_NORM = TF.batch_norm
FAST = ("batch norm", "attention", "spectral norm", "stops")


@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds()]
)
def test_derivatives_are_pytorchs(kind, monkeypatch):
    torch.manual_seed(0)
    module = kinds()[kind].double()
    given = np.random.default_rng(1).normal(size=(2, 4, 4, 4))
    network = nn.from_torch(module)
    parameters = network.get_parameters()
    assert list(network.get_parameters(grad_only=False)) == list(module.state_dict())

    x = nn.Variable.from_numpy_array(given)
    y = network(x)
    (first,) = nn.grad([F.sum(F.sin(y))], [x])
    (second,) = nn.grad([F.sum(first**3)], [x])
    thirds = nn.grad([F.sum(second**2)], list(parameters.values()))
    outputs = [y, first, second, *thirds]

    for name, exact in (
        ("batch_norm", exact_batch_norm), ("instance_norm", exact_instance_norm), ("layer_norm", exact_layer_norm)
    ):  # fmt: skip
        monkeypatch.setattr(TF, name, exact)
    t = torch.tensor(given, requires_grad=True)
    with L.attention.sdpa_kernel(L.attention.SDPBackend.MATH):
        ty = module(t)
    (tf,) = torch.autograd.grad(ty.sin().sum(), t, create_graph=True)
    (ts,) = torch.autograd.grad((tf**3).sum(), t, create_graph=True)
    named = dict(module.named_parameters())
    tt = torch.autograd.grad((ts**2).sum(), list(named.values()), allow_unused=True)
    wanted = [ty, tf, ts, *[torch.zeros_like(p) if g is None else g for g, p in zip(tt, named.values(), strict=True)]]
    wanted = [y.detach() for y in wanted[:3]] + [dict(zip(named, wanted[3:], strict=True))[k] for k in parameters]

    nn.forward_all(outputs)
    largest = [float(abs(y).max()) for y in wanted[:3]] + [max(float(abs(y).max()) for y in wanted[3:])] * len(thirds)
    for ours, theirs, size in zip(outputs, wanted, largest, strict=True):
        np.testing.assert_allclose(ours.d, theirs, rtol=1e-9, atol=1e-9 * max(1.0, size))
    for name, value in network.to_torch().items():  # buffers that the call has changed
        torch.testing.assert_close(value, module.state_dict()[name], rtol=1e-11, atol=1e-11)


class Parts(L.Module):
    """Nested arguments and results, tied weights, integers, two modes and running statistics."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = L.Embedding(5, 3, padding_idx=1), L.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight
        self.norm, self.drop = L.BatchNorm1d(3), L.Dropout(0.5)

    def forward(self, given, *, scale=1.0):
        h = self.norm(self.embed(given["index"])) * scale
        return {"scores": self.out(h), "parts": (self.drop(h), h + given["x"])}


def test_arguments_results_and_state():
    torch.manual_seed(0)
    module = Parts().double()
    network = nn.from_torch(module)
    assert network.get_parameters()["embed.weight"] is network.parameter_scope["out.weight"]
    rng = np.random.default_rng(0)
    index = rng.integers(0, 5, 4)
    outs = []
    for count in (4, 3):  # two calls in one graph, of two batch sizes
        given = {"index": index[:count], "x": rng.normal(size=(count, 3))}
        ours = network(given, scale=2.0)
        theirs = module({k: torch.tensor(v) for k, v in given.items()}, scale=2.0)
        outs += [(ours["scores"], theirs["scores"]), (ours["parts"][1], theirs["parts"][1])]
    drop = ours["parts"][0]
    (g,) = nn.grad([F.sum(F.sin(outs[0][0]))], [network.get_parameters()["embed.weight"]])
    (wanted,) = torch.autograd.grad(outs[0][1].sin().sum(), module.embed.weight)
    nn.forward_all([drop, g, *[y for y, _ in outs]])
    for y, t in outs:
        np.testing.assert_allclose(y.d, t.detach(), rtol=1e-12)
    np.testing.assert_allclose(g.d, wanted, rtol=1e-10, atol=1e-12)
    ratio = drop.d / (outs[-1][0].d - given["x"])
    assert np.all(np.isclose(ratio, 0) | np.isclose(ratio, 2))
    for name, value in network.to_torch().items():
        torch.testing.assert_close(value, module.state_dict()[name])
    network.training = False
    given = {"index": index, "x": rng.normal(size=(4, 3))}
    y, t = network(given)["parts"][0], module({k: torch.tensor(v) for k, v in given.items()})["parts"][0]
    y.forward()
    np.testing.assert_allclose(y.d, t.detach(), rtol=1e-12)


def test_several_calls_of_one_graph_follow_one_another():
    """Spectral and batch normalisation in training mode, three times: loss, second derivatives in it, and buffers."""
    torch.manual_seed(0)
    normed = L.utils.parametrizations.spectral_norm
    module = L.Sequential(normed(L.Linear(3, 4)), L.BatchNorm1d(4), L.Tanh(), normed(L.Linear(4, 1))).double()
    network = nn.from_torch(module)
    given = np.random.default_rng(0).normal(size=(3, 5, 3))

    def loss(network, x, y, z, to_sum, grad):
        scores = [network(each) for each in (x, y, z)]
        return to_sum(scores[0] ** 2 - scores[2]) + to_sum(grad(to_sum(scores[1] ** 2), y) ** 2)

    ours = loss(network, *map(nn.Variable.from_numpy_array, given), F.sum, lambda y, x: nn.grad(y, x)[0])
    tensors = [torch.tensor(x, requires_grad=True) for x in given]
    theirs = loss(module, *tensors, torch.sum, lambda y, x: torch.autograd.grad(y, x, create_graph=True)[0])
    theirs.backward()
    value = nn.train_step(ours, network, S.Sgd(0.1))()
    torch.optim.SGD(module.parameters(), 0.1).step()
    np.testing.assert_allclose(float(value), theirs.item(), rtol=1e-9)
    for name, value in network.to_torch().items():
        torch.testing.assert_close(value, module.state_dict()[name], rtol=1e-9, atol=1e-11)


def test_fit_resumes_and_parameters_are_saved(tmp_path):
    def made():
        torch.manual_seed(0)
        normed = L.utils.parametrizations.spectral_norm
        return nn.from_torch(L.Sequential(normed(L.Linear(3, 4)), L.BatchNorm1d(4), L.Linear(4, 1)).double())

    def fitted(steps, folder=None):
        network = made()
        x = nn.Variable.from_numpy_array(np.zeros((5, 3)))
        solver = S.Adam(0.01)
        step = nn.train_step(F.mean((network(x) - F.sum(x, axis=1, keepdims=True)) ** 2), network, solver, [x])
        nn.fit(step, batches, steps=steps, checkpoints=folder and nn.Checkpointer(folder, solver, every=1))
        return network

    batches = [(x,) for x in np.random.default_rng(0).normal(size=(4, 5, 3))]
    whole = fitted(4)
    fitted(2, tmp_path / "run")
    resumed = fitted(4, tmp_path / "run")
    whole.save_parameters(tmp_path / "weights.safetensors")
    loaded = made()
    loaded.load_parameters(tmp_path / "weights.safetensors")
    given = made()
    given.set_parameters(whole.to_torch(), raise_if_missing=True)
    for other in (resumed, loaded, given):
        other.module.load_state_dict(whole.to_torch())  # strictly
        for name, value in other.to_torch().items():
            assert value.equal(whole.to_torch()[name]), name
    x = torch.ones(2, 3, dtype=torch.float64)
    outputs = [network(x).d for network in (whole, loaded)]  # tensors as arguments
    np.testing.assert_array_equal(*outputs)


def test_bfloat16():
    module = L.Linear(3, 2).bfloat16()
    network = nn.from_torch(module)
    given = np.arange(6.0, dtype="float32").reshape(2, 3) / 4
    y = network(F.cast(nn.Variable.from_numpy_array(given), dtype="bfloat16"))
    y.forward()
    assert y.dtype.name == "bfloat16"
    wanted = module(torch.tensor(given).bfloat16()).float().detach()
    np.testing.assert_allclose(y.d.astype("f"), wanted, rtol=1e-2, atol=1e-2)
    assert network.to_torch()["weight"].equal(module.weight)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return -g


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: -g)
    return y


@pytest.mark.parametrize(("function", "message"), [
    (Reversed.apply, "Reversed, an autograd.Function"),
    (hooked, "a hook on a gradient"),
    (lambda x: torch.linalg.qr(x)[1], r"1 \(Net\) needs aten.linalg_qr.default"),
    (lambda x: x.add_(1), "a change of the argument"),
    (lambda x: 3, "returns int"),
])  # fmt: skip
def test_refusals(function, message):
    network = nn.from_torch(L.Sequential(L.Identity(), Net(lambda net, x: function(x))))
    with pytest.raises(NotImplementedError, match=message):
        network(np.ones((2, 2), "float32"))


def penalised(critic, real, fake, mixed, grad, mean, total):
    """The loss of WGAN-GP, on Variables or tensors."""
    g = grad(total(critic(mixed)), mixed)
    return mean(critic(fake)) - mean(critic(real)) + 10 * mean((total(g * g, (1, 2, 3)) ** 0.5 - 1) ** 2)


@pytest.mark.slow
def test_dcgan_trains_as_in_pytorch():
    torch.manual_seed(0)
    generator = L.Sequential(
        L.ConvTranspose2d(5, 8, 4, bias=False), L.BatchNorm2d(8), L.ReLU(), L.ConvTranspose2d(8, 3, 4, 2, 1), L.Tanh()
    ).double()
    critic = L.Sequential(
        L.Conv2d(3, 8, 4, 2, 1), L.LeakyReLU(0.2), L.Conv2d(8, 8, 3, bias=False), L.InstanceNorm2d(8, affine=True),
        L.LeakyReLU(0.2), L.Flatten(), L.Linear(32, 1),
    ).double()  # fmt: skip
    net_g, net_c = nn.from_torch(generator), nn.from_torch(critic)
    rng = np.random.default_rng(0)
    real, mix, z = rng.normal(size=(4, 3, 8, 8)), rng.uniform(size=(4, 1, 1, 1)), rng.normal(size=(4, 5, 1, 1))
    r, e, n = map(nn.Variable.from_numpy_array, (real, mix, z))
    fake = F.unlink(net_g(n))
    loss_c = penalised(net_c, r, fake, e * r + (1 - e) * fake, lambda y, x: nn.grad([y], [x])[0], F.mean, F.sum)
    loss_g = -F.mean(net_c(net_g(n)))
    step_c = nn.train_step(loss_c, net_c.get_parameters(), S.Adam(1e-3, 0.5, 0.9))
    step_g = nn.train_step(loss_g, net_g.get_parameters(), S.Adam(1e-3, 0.5, 0.9))

    adam_c = torch.optim.Adam(critic.parameters(), 1e-3, (0.5, 0.9))
    adam_g = torch.optim.Adam(generator.parameters(), 1e-3, (0.5, 0.9))
    tr, te, tz = map(torch.tensor, (real, mix, z))
    for _ in range(20):
        ours = float(step_c()), float(step_g())
        adam_c.zero_grad()
        fake = generator(tz).detach()
        mixed = (te * tr + (1 - te) * fake).requires_grad_()
        first = penalised(critic, tr, fake, mixed, lambda y, x: torch.autograd.grad(y, x, create_graph=True)[0],
                          torch.mean, torch.sum)  # fmt: skip
        first.backward()
        adam_c.step()
        adam_g.zero_grad()
        second = -critic(generator(tz)).mean()
        second.backward()
        adam_g.step()
        np.testing.assert_allclose(ours, [first.item(), second.item()], rtol=1e-9, atol=1e-9)
    for net, module in ((net_g, generator), (net_c, critic)):
        for name, value in net.to_torch().items():
            torch.testing.assert_close(value, module.state_dict()[name], rtol=1e-9, atol=1e-9)
        module.load_state_dict(net.to_torch())


def test_the_page():
    page = (Path(__file__).parents[2] / "docs" / "from_pytorch.md").read_text()
    names = {}
    first, second = [part.partition("```")[0] for part in page.split("```py\n")[1:3]]
    exec(first, names)
    critic = names["torch_critic"]
    for name, value in names["critic"].to_torch().items():
        assert critic.state_dict()[name].equal(value)
    exec(second, names)
    images = np.ones((16, 1, 8, 8), "float32")
    wanted = critic(torch.tensor(images)).detach()
    np.testing.assert_allclose(names["function"](names["weights"], images), wanted, rtol=1e-4, atol=1e-5)
