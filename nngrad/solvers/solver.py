"""Solver: what all solvers have in common."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..graph import Variable
from ..graph.process import check_process
from ..graph.spec import wide_types
from ..storage import read_arrays, write_arrays
from .gradients import Arrays, clipped, decayed, multiplied, not_finite
from .loss_scale import DynamicLossScale, DynamicState, LossScale, as_loss_scale, like, scaled_init, scaled_update
from .rates import as_number, as_rate
from .state import NAMES_OF_LOSS_SCALE, fitting_states, names_of

Transformation: TypeAlias = optax.GradientTransformation


class Solver:
    """Moves parameters along their gradients.

    A subclass says how in `transformation`. The usual loop is `solver.set_parameters(nn.get_parameters())`
    once, and then `solver.zero_grad()`, `loss.forward()`, `loss.backward()`, `solver.update()` at each step;
    `nn.train_step` does the same as one executable.

    Solvers are pickled and deeply copied with their settings, state and parameters: their values and gradients. Where
    parameters are pickled together with their solver, as in `pickle.dumps((params, solver))`, it goes on with those.

    Args:
        lr: The learning rate, not negative. Changing it later compiles nothing anew.
    """

    rate_name = "lr"
    """How the solver's arguments call the learning rate."""

    def __init__(self, lr: float) -> None:
        self._params: OrderedDict[str, Variable] = OrderedDict()
        self._variables: tuple[Variable, ...] = ()
        self._state: Any = None  # the state's arrays in a flat tuple: passing that on is faster than a tree
        self._structure: Any = None
        self._wide = False
        self._scaling: LossScale | None = None
        self._initial_lr = as_rate(lr, self.rate_name)
        self._set_rate(self._initial_lr)
        self._step = jax.jit(self._flat_update, donate_argnums=2)

    def transformation(self, lr: Any) -> Transformation:
        """The optax transformation for the learning rate `lr`, a number or a traced scalar."""
        raise NotImplementedError(f"{type(self).__name__} has no transformation")

    @staticmethod
    def from_optax(tx: Transformation | Callable[[Any], Transformation], lr: float | None = None) -> Solver:
        """A solver made of any optax transformation.

        Args:
            tx: A transformation; or a function that makes one for a learning rate, such as `optax.adam`. `pickle`
                takes the solver with such a function, or a `functools.partial` of it, but not with a transformation.
            lr: The learning rate, where `tx` is such a function. Without it the learning rate is
                the transformation's own affair, and `set_learning_rate` raises.
        """
        from .from_optax import FromOptax

        return FromOptax(tx, lr)

    def __getstate__(self) -> dict[str, Any]:
        made_anew = vars(Solver(0.0)).keys() - {"_initial_lr", "_lr", "_params", "_scaling"}
        kept = {name: value for name, value in vars(self).items() if name not in made_anew}
        return kept if self._state is None else {**kept, "states": self.get_states()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        Solver.__init__(self, kept["_initial_lr"])
        states = kept.pop("states", None)
        vars(self).update(kept)
        self._replace(self._params, [])
        if states is not None:
            self.set_states(states)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} solver, lr {self._lr:g}, {len(self._params)} parameters>"

    # ---------------------------------------------------------------- parameters

    def set_parameters(
        self, param_dict: Mapping[str, Variable], reset: bool = True, retain_state: bool = False
    ) -> None:
        """Set what is trained.

        Args:
            param_dict: Parameters by name, such as `nn.get_parameters()`.
            reset: Forget the parameters set before; else these are added to them.
            retain_state: Keep the state of parameters that were there under the same name.
        """
        given = dict(param_dict)
        for name, p in given.items():
            if not isinstance(p, Variable):
                raise TypeError(f"set_parameters: {name!r} must be a Variable, got {type(p).__name__}")
            if not p.spec.differentiable:
                raise TypeError(f"set_parameters: {name!r} is {p.dtype.name}; only floating dtypes can be trained")
        params = OrderedDict(given) if reset else OrderedDict({**self._params, **given})
        kept = [n for n in self._params if n in params and (retain_state or n not in given)]
        self._replace(params, kept)

    def get_parameters(self) -> OrderedDict[str, Variable]:
        """The parameters by name."""
        return self._params.copy()

    def remove_parameters(self, keys: Iterable[str]) -> None:
        """Train those named in `keys` no more, and forget their state."""
        gone = [keys] if isinstance(keys, str) else list(keys)
        unknown = [key for key in gone if key not in self._params]
        if unknown:
            raise KeyError(f"remove_parameters: no parameter {', '.join(map(repr, unknown))}")
        left = OrderedDict((name, p) for name, p in self._params.items() if name not in gone)
        self._replace(left, list(left))

    def clear_parameters(self) -> None:
        """Forget all parameters and their state."""
        self._replace(OrderedDict(), [])

    def _replace(self, params: OrderedDict[str, Variable], kept: list[str]) -> None:
        """Train `params` from now on; those named in `kept` keep their state, and then counters go on too."""
        old = self.get_states() if self._state is not None and kept else {}
        self._params = params
        self._variables = tuple(params.values())
        self._wide = any(p.spec.wide for p in self._variables)
        self._set_rate(self._lr)  # its dtype follows the parameters'
        self._start_from(old, kept)

    def _start_from(self, old: Mapping[str, np.ndarray[Any, Any]], kept: list[str]) -> None:
        """Make the state anew, with what there is in `old` of the counters and of the parameters named in `kept`."""
        self._state = None
        if old:
            states = self.get_states()
            for key, array in states.items():
                owner = key.partition(":")[2]
                before = old.get(key)
                if before is not None and (not owner or owner in kept) and before.shape == array.shape:
                    states[key] = before.astype(array.dtype)
            self.set_states(states)

    # ---------------------------------------------------------------- a step

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        for p in self._variables:
            p.grad.zero()

    def update(self) -> None:
        """Move each parameter along its gradient."""
        variables = self._variables
        if not variables:
            raise RuntimeError("update: the solver has no parameters; call set_parameters first")
        params = [p.cell.raw() for p in variables]
        grads = [p.grad.raw() for p in variables]
        state = self._flat_state() if self._state is None else self._state
        with wide_types(self._wide):
            new, self._state = self._step(params, grads, state, self._rate)
        for p, array in zip(variables, new, strict=True):
            p.cell.put(array)

    def _flat_update(self, params: list[Any], grads: list[Any], state: Arrays, lr: Any) -> tuple[Arrays, Arrays]:
        tree = jax.tree.unflatten(self._structure, state)
        new, tree = self.pure_update(tuple(params), tuple(grads), tree, lr)
        return new, tuple(jax.tree.leaves(tree))

    def pure_update(self, params: Arrays, grads: Arrays, state: Any, lr: Any) -> tuple[Arrays, Any]:
        """One step as a pure function of arrays: the new parameters and the new state.

        Args:
            params: Arrays of the parameters, in their order.
            grads: Their gradients.
            state: The state, as `state` gives it.
            lr: The learning rate, a number or a traced scalar.
        """

        def move(params: Arrays, grads: Arrays, state: Any) -> tuple[Arrays, Any]:
            updates, new = self.transformation(lr).update(grads, state, params)
            return optax.apply_updates(params, updates), jax.tree.map(like, new, state)

        if self._scaling is None:
            return move(params, grads, state)
        return scaled_update(move, self._scaling, params, grads, state)

    def _init(self) -> Callable[[Arrays], Any]:
        """What makes the state for arrays of parameters."""
        init = self.transformation(self._initial_lr).init
        return init if self._scaling is None else scaled_init(init, self._scaling)

    @property
    def state(self) -> Any:
        """The optax state. The next step takes its arrays over: copy what is to last."""
        arrays = self._flat_state()
        return jax.tree.unflatten(self._structure, arrays)

    @state.setter
    def state(self, value: Any) -> None:
        arrays, self._structure = jax.tree.flatten(value)
        self._state = tuple(arrays)

    def _flat_state(self) -> Any:
        if self._state is None:
            check_process()
            with wide_types(self._wide):
                init = jax.jit(self._init())
                self.state = init(tuple([p.cell.raw() for p in self._variables]))
        return self._state

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate.

        Raises:
            ValueError: It is negative or not finite.
        """
        lr = as_rate(learning_rate, "learning_rate")
        if lr != self._lr:
            self._set_rate(lr)

    def _set_rate(self, lr: float) -> None:
        # As an array of JAX it is neither compiled in nor converted at each step.
        self._lr = lr
        with wide_types(self._wide):
            self._rate = jax.device_put(np.array(lr, np.float64 if self._wide else np.float32))

    def learning_rate(self) -> float:
        """The learning rate."""
        return self._lr

    # ---------------------------------------------------------------- gradients

    def weight_decay(self, decay_rate: float) -> None:
        """Add `decay_rate` times the parameter to each gradient.

        It changes the gradients that `backward()` has left (`p.g`), so it has no effect on a training step of
        `nn.train_step`, which keeps its gradients to itself: chain `optax.add_decayed_weights` in front of the
        transformation for it, as in `Solver.from_optax(optax.chain(optax.add_decayed_weights(1e-4),
        optax.sgd(0.1)))`.

        Raises:
            ValueError: `decay_rate` is negative or not finite.
        """
        self._change_gradients(decayed, as_rate(decay_rate, "weight_decay: decay_rate"))

    def clip_grad_by_norm(self, norm: float) -> None:
        """Scale each gradient whose L2 norm is larger than `norm` to that norm: each parameter's by itself.

        It changes the gradients that `backward()` has left (`p.g`), so it has no effect on a training step of
        `nn.train_step`, which keeps its gradients to itself: chain a clipping of optax in front of the
        transformation for it, as in `Solver.from_optax(optax.chain(optax.clip_by_global_norm(1.0),
        optax.sgd(0.1)))`, whose norm is that of all gradients together.

        Raises:
            ValueError: `norm` is negative or not a number. Infinity clips nothing.
        """
        limit = as_number(norm, "clip_grad_by_norm: norm")
        if not limit >= 0:
            raise ValueError(f"clip_grad_by_norm: norm must not be negative, got {norm!r}")
        self._change_gradients(clipped, limit)

    def scale_grad(self, scale: float) -> None:
        """Multiply all gradients by `scale`: those that `backward()` has left (`p.g`), as in `weight_decay`.

        Raises:
            ValueError: `scale` is not finite.
        """
        factor = as_number(scale, "scale_grad: scale")
        if not math.isfinite(factor):
            raise ValueError(f"scale_grad: scale must be finite, got {scale!r}")
        self._change_gradients(multiplied, factor)

    def _change_gradients(self, function: Callable[..., Arrays], value: float) -> None:
        params = tuple([p.cell.raw() for p in self._variables])
        grads = tuple([p.grad.raw() for p in self._variables])
        with wide_types(self._wide):
            changed = function(params, grads, value, self.loss_scale)
        for p, grad in zip(self._variables, changed, strict=True):
            p.grad.put(grad)
            p.grad.variable = None  # which has another value

    def check_inf_grad(self) -> bool:
        """Whether some gradient is infinite."""
        return self._found()[0]

    def check_nan_grad(self) -> bool:
        """Whether some gradient is not a number."""
        return self._found()[1]

    def check_inf_or_nan_grad(self) -> bool:
        """Whether some gradient is infinite or not a number."""
        return any(self._found())

    def _found(self) -> tuple[bool, bool]:
        with wide_types(self._wide):
            inf, nan = not_finite(tuple([p.grad.raw() for p in self._variables]))
        return bool(inf), bool(nan)

    # ---------------------------------------------------------------- loss scaling

    def loss_scaling(self, scale: float | DynamicLossScale | None) -> None:
        """Divide the gradients by the number that the loss is multiplied by, at each update from now on.

        Training in float16 needs it, since gradients below 6e-8 are zero there, and above 65504 infinite. The loop
        multiplies the loss, `nn.train_step` does so by itself:

            solver.loss_scaling(nn.DynamicLossScale())
            ...
            loss.forward()
            solver.zero_grad()
            loss.backward(loss_scale=solver.loss_scale)
            solver.update()

        In between `weight_decay` and `clip_grad_by_norm` take the scale into account: their arguments are meant for
        the gradients of the loss itself. With a scale the solver computes, and keeps its state, in float32 at
        least. The state that it has is kept; a training step made before must be made anew.

        Args:
            scale: A power of two, which stays as it is and with which nothing is skipped; a DynamicLossScale, whose
                scale is part of the solver's state; or None for no scaling.

        Raises:
            TypeError: `scale` is something else.
            ValueError: It is no power of two, or not within the range of float32.
        """
        scaling = as_loss_scale(scale, "loss_scaling: scale")
        old = {} if self._state is None else self.get_states()
        self._scaling = scaling
        self._variables = tuple(self._params.values())  # another object, by which a training step sees the change
        self._step = jax.jit(self._flat_update, donate_argnums=2)
        self._start_from({n: a for n, a in old.items() if n not in NAMES_OF_LOSS_SCALE}, list(self._params))

    @property
    def loss_scale(self) -> float | jax.Array:
        """What the loss has to be multiplied by: a number, or float32[] where it is dynamic, without waiting for it."""
        dynamic = self._dynamic_state()
        if dynamic is not None:
            return dynamic.scale.copy()  # the next update takes that one over
        return 1.0 if self._scaling is None else self._scaling

    @property
    def skipped_updates(self) -> int:
        """How many updates a dynamic loss scale has skipped, because a gradient was infinite or not a number."""
        dynamic = self._dynamic_state()
        return 0 if dynamic is None else int(dynamic.skipped)

    @property
    def scaling(self) -> float | DynamicLossScale | None:
        """What `loss_scaling` was given."""
        return self._scaling

    def _dynamic_state(self) -> DynamicState | None:
        return self.state.loss_scale if isinstance(self._scaling, DynamicLossScale) else None

    # ---------------------------------------------------------------- state

    def get_states(self) -> OrderedDict[str, np.ndarray[Any, Any]]:
        """A copy of the state: arrays by name, as 'mu:conv/W' for a parameter's own and 'count' for what is shared."""
        names, leaves = self._named_state()
        return OrderedDict((name, np.array(leaf)) for name, leaf in zip(names, leaves, strict=True))

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Take over a state that `get_states` of a solver of this kind with these parameters gave: all or nothing.

        Raises:
            TypeError: `states` is no mapping of names to arrays.
            ValueError: Names, shapes or dtypes are others, a counter is negative, or the loss scale out of its bounds.
        """
        names, leaves = self._named_state()
        given = fitting_states(states, dict(zip(names, leaves, strict=True)), self._scaling)
        with wide_types(self._wide):
            self._state = tuple([jnp.array(given[name]) for name in names])

    def save_states(self, path: str | Path) -> None:
        """Write the state to a safetensors file, which is replaced as a whole or not at all."""
        write_arrays(path, self.get_states(), {"solver": type(self).__name__})

    def load_states(self, path: str | Path) -> None:
        """Read the state from a file of `save_states`.

        Raises:
            ValueError: The file is damaged, or what is in it does not fit, as in `set_states`; nothing is changed then.
            OSError: It cannot be read.
        """
        arrays, _ = read_arrays(path)
        try:
            self.set_states(arrays)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def _named_state(self) -> tuple[list[str], list[Any]]:
        state = self.state
        names = names_of(self._init(), state, tuple(self._params))
        return names, jax.tree.leaves(state)
