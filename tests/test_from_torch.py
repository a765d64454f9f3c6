"""`nn.from_torch`: modules of PyTorch's at orders 0 to 3, trained, and refused, beside PyTorch itself."""

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F

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
