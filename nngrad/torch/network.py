"""`TorchNetwork`: a module of PyTorch's as a Module, whose calls are functions of F."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes
import numpy as np
import torch

from ..extend import Variable, apply, key_of
from ..functions.control import in_turn, update
from ..training.modules import Module
from .exporting import Exported, exported, numpy_name, run
from .operators import Unsupported, in_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence


class TorchNetwork(Module):
    """A module of PyTorch's on Variables; made by `nn.from_torch`."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._exported: dict[Hashable, tuple[Exported, Any]] = {}
        self._leaves: dict[str, Variable] = {}
        variables: dict[int, Variable] = {}
        leaves = dict(module.named_parameters(remove_duplicate=False))
        leaves.update(module.named_buffers(remove_duplicate=False))
        for name, tensor in leaves.items():
            if id(tensor) not in variables:
                if torch.nn.parameter.is_lazy(tensor):
                    raise ValueError(f"from_torch: {name!r} has no shape yet; call the module once in PyTorch")
                variables[id(tensor)] = variable(tensor, name)
            self._leaves[name] = variables[id(tensor)]
        for name, tensor in module.state_dict(keep_vars=True).items():
            if id(tensor) in variables and variables[id(tensor)] is self._leaves.get(name):
                self.parameter_scope[name] = self._leaves[name]

    @property
    def module(self) -> torch.nn.Module:
        """The module of PyTorch's. Its parameters keep their values: training changes those of this Module."""
        return self._module

    @property
    def training(self) -> bool:
        """True if the module is in training mode; setting it calls the module's `train`. The modes of its parts, which
        `module.eval()` and the like change too, are those of the moment of a call."""
        mode: bool = self._module.training
        return mode

    @training.setter
    def training(self, on: bool) -> None:
        self._module.train(on)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result for Variables in place of tensors; arrays and tensors become constants.

        Raises:
            NotImplementedError: The module does what has no counterpart here; the message says what, and where.
        """
        arguments, tree = jax.tree_util.tree_flatten((args, kwargs), is_leaf=lambda x: x is None)
        arguments = [
            variable(x, None) if isinstance(x, torch.Tensor)
            else Variable.from_numpy_array(x) if isinstance(x, np.ndarray | jax.Array) else x
            for x in arguments
        ]  # fmt: skip
        inputs = [x for x in arguments if isinstance(x, Variable)]
        kind = (
            tree, tuple([(x.shape, x.dtype.name) if isinstance(x, Variable) else key_of(x) for x in arguments]),
            tuple([m.training for m in self._module.modules()]),
        )  # fmt: skip
        try:
            if kind not in self._exported:
                self._exported[kind] = self._export(arguments, tree)
            module_graph, structure = self._exported[kind]
            rest = iter(inputs)
            leaves = self._leaves | {name: in_turn(self._leaves[name]) for name in module_graph.updated if name}
            placeholders = [
                leaves[name] if name else next(rest) if constant is None else variable(constant, None)
                for name, constant in module_graph.inputs
            ]
            results = run(module_graph, placeholders)
        except Unsupported as error:
            raise NotImplementedError(f"from_torch: {error}") from error
        changed = [self._leaves[name] for name in module_graph.updated if name]
        if changed:  # one function for all outputs, so that the call updates them once
            values = [in_dtype(y, leaf.dtype.name) for leaf, y in zip(changed, results, strict=False)]
            effects = tuple([(leaf, i) for i, leaf in enumerate(changed)])
            results = list(apply(update, (*values, *results[len(changed) :]), (), effects))
        outputs = results[len(changed) :]  # new values of buffers come first
        return jax.tree_util.tree_unflatten(structure, outputs)

    def _export(self, leaves: Sequence[Any], tree: Any) -> tuple[Exported, Any]:
        """The module's graph for arguments like these, and the structure of its result."""
        structures = []

        def call(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            rest = iter(tensors)
            filled = [next(rest) if isinstance(x, Variable) else x for x in leaves]
            args, kwargs = jax.tree_util.tree_unflatten(tree, filled)
            results, structure = jax.tree_util.tree_flatten(module(*args, **kwargs))
            for y in results:
                if not isinstance(y, torch.Tensor):
                    raise Unsupported(f"{type(module).__name__} returns {type(y).__name__}; it can return tensors, and "
                                      "tuples, lists and dicts of these")
            structures.append(structure)
            return results

        shapes = [(x.shape, x.dtype.name) for x in leaves if isinstance(x, Variable)]
        return exported(self._module, call, shapes), structures[-1]

    def to_torch(self) -> dict[str, torch.Tensor]:
        """The values as a `state_dict`, for `module.load_state_dict(network.to_torch())`."""
        return {
            name: tensor_of(self._leaves[name].d) if name in self._leaves else value
            for name, value in self._module.state_dict().items()
        }


def variable(tensor: torch.Tensor, name: str | None) -> Variable:
    """A leaf with the value of a tensor."""
    if tensor.is_complex() or tensor.is_sparse or tensor.is_quantized:
        raise TypeError(f"from_torch: {name!r} is complex, sparse or quantised; a Variable holds dense real numbers")
    held = tensor.detach().cpu()
    array = held.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if held.dtype == torch.bfloat16 else held.numpy()
    leaf = Variable.from_numpy_array(array.copy(), need_grad=tensor.requires_grad, dtype=numpy_name(tensor.dtype))
    if name is not None:
        leaf.name = name
        leaf.cell.axes = ()  # replicated on a mesh, unlike a batch
    return leaf


def tensor_of(array: Any) -> torch.Tensor:
    """A tensor with the value of an array."""
    array = np.array(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
