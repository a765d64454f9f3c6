"""The door to PyTorch: its modules as functions on Variables (`nn.from_torch`). Only that call imports PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .network import TorchNetwork


def from_torch(module: Any) -> TorchNetwork:
    """A network of PyTorch's, as it is, on Variables.

        critic = nn.from_torch(torch_critic)                   # a torch.nn.Module
        y = critic(x)
        (g,) = nn.grad(F.sum(y), x)                            # differentiable to any order
        ...
        step = nn.train_step(loss, critic, S.Adam(1e-4))
        torch_critic.load_state_dict(critic.to_torch())        # the trained values

    The result is a Module. Its parameters and buffers are Variables with the module's values, named as in its
    `state_dict`; a parameter is trained if it has `requires_grad`, and tied weights are one Variable. A call gives
    functions of F: the module is exported by `torch.export` for the shapes, dtypes and structure of the arguments and
    the modes (`train`, `eval`) of its parts, and each operator of the export becomes a function of F. Random numbers,
    such as those of dropout, are nngrad's. Buffers that the module changes in a call, such as running statistics, are
    written by each `forward()` of a graph with that call. Several calls in training mode in one graph follow one
    another as in PyTorch: each begins with the buffers as the call before it leaves them, such as the vectors of a
    spectral norm.

    Args:
        module: A `torch.nn.Module`. Its arguments can be Variables or arrays, in tuples, lists and dicts too, by
            position or keyword; others, such as numbers and strings, are passed on.

    Raises:
        ImportError: PyTorch is not installed.
        TypeError: `module` is not a `torch.nn.Module`, or has complex, sparse or quantised parameters.
        ValueError: A parameter has no shape yet.
    """
    try:
        import torch
    except ImportError:
        raise ImportError("from_torch needs PyTorch, which is not installed: pip install 'nngrad[torch]'") from None
    from .network import TorchNetwork

    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {module!r}")
    return TorchNetwork(module)
