"""Solver: the base class of all solvers."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental.xla_metadata import set_xla_metadata

from ..extend import (
    Awaited,
    BoundedCache,
    Spec,
    Value,
    Variable,
    awaited,
    bytes_of,
    check_not_traced,
    check_process,
    explained,
    grads_of,
    reached_leaves,
    x64_if,
)
from ..files.formats import known_formats
from ..files.storage import read_into, write_arrays
from .gradients import Arrays, changed, clipped, has_inf_has_nan, times, with_decay
from .in_place import STEP_TO_TRACE, InPlaceUpdate, Results, SolverArrays
from .loss_scale import (
    DynamicLossScale,
    LossScale,
    as_loss_scale,
    done_if,
    like,
    scaled_init,
    scaled_update,
)
from .packed_parameters import PackedParameters
from .rates import Rate, as_rate, as_real, schedule_of, scheduled
from .state import (
    NAMES_OF_LOSS_SCALE,
    SolverState,
    first_state,
    fitting_states,
    named_of,
    names_of_state,
    states_of,
)
from .untrained import solvers, warn_of_untrained

if TYPE_CHECKING:
    from ..training.modules import Module

Hook: TypeAlias = Callable[[], Any]
Transformation: TypeAlias = optax.GradientTransformation


class Solver:
    """Updates parameters along their gradients.

    A subclass defines `transformation`. The usual loop calls `solver.set_parameters(nn.get_parameters())` once, and
    then `solver.zero_grad()`, `loss.forward()`, `loss.backward()`, `solver.update()` at each step; `nn.train_step` does
    the same as one executable.

    Args:
        lr: The learning rate, not negative; or a schedule, as in `set_learning_rate`. Changing it later recompiles
            nothing.
    """

    rate_name = "lr"
    """What the solver's arguments call the learning rate; all solvers understand `lr`."""
    opaque = False
    """Whether the transformation is the user's, and may call functions on the host."""
    takes_residuals = False
    """Whether training steps give it residuals, from which it computes directions."""
    elementwise = False
    """Whether the transformation moves each number by its own gradients alone, so that it may take several parameters
    as one array; said of each class that defines one."""
    _places: Mapping[str, str] = {}
    """nnabla's names, if it has any, of the places in optax's state; 't' counts updates."""

    def __init_subclass__(cls, names: Mapping[str, str] | None = None, elementwise: bool = False) -> None:
        if names is not None:
            cls._places = names
        owner = next(base for base in cls.__mro__ if "transformation" in vars(base))
        cls.elementwise = elementwise if owner is cls else vars(owner).get("elementwise", False)
        if "__init__" in vars(cls):
            cls.__init__ = explained(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, lr: Rate = 1e-3) -> None:
        self._params: OrderedDict[str, Variable] = OrderedDict()
        self._variables: tuple[Variable, ...] = ()
        self._state: SolverArrays | None = None  # a flat tuple of arrays is faster to pass on than a tree
        self._structure: Any = None
        self._packing = PackedParameters({}, self.elementwise)
        self._lr: float | Callable[[int], Any]  # a number or a schedule
        self._held_rate: tuple[float, Any] | None  # the rate, and the same as an array once it has been read
        self._needs_x64 = False
        self.scaling: LossScale | None = None  # the argument of `loss_scaling`
        self._initial_lr = self._set_rate(lr, self.rate_name)
        self.updating = threading.RLock()  # held while parameters and state change or are replaced
        self.unused_change = ""  # the method that changed gradients since the last update, or ""
        self._zeros: tuple[list[Any], list[Value]] = [], []  # the last cells set to zero, and their values then
        self._compile()

    def _compile(self) -> None:
        # The graph of the loss holds the parameters' arrays, so these are not donated.
        self._update = InPlaceUpdate(self._flat_update, self, [], None, self.opaque, taken=(0,))
        self._joined = BoundedCache(512, most_bytes=512 << 20)
        """Updates that compute the gradients too, by what computes them and which parameters they belong to."""

    def transformation(self, lr: Any) -> Transformation:
        """The optax transformation for the learning rate `lr`, a number or a traced scalar."""
        raise NotImplementedError(f"{type(self).__name__} has no transformation")

    def directions(self, residuals: list[Variable], parameters: list[Variable], damping: Variable) -> list[Variable]:
        """The directions to subtract, for a solver that takes residuals; `damping` is read from its state."""
        raise NotImplementedError(f"{type(self).__name__} takes no residuals")

    @staticmethod
    def from_optax(tx: Transformation | Callable[[Any], Transformation], lr: Rate | None = None) -> Solver:
        """Make a solver from any optax transformation. It sees parameters, gradients and its state in dicts by the
        parameters' names, so `optax.multi_transform` takes labels by name, for groups with rates of their own:

            rates = {"slow": optax.adam(1e-5), "fast": optax.adam(1e-3)}
            S.Solver.from_optax(optax.multi_transform(
                rates, lambda p: {name: "slow" if name.startswith("@mapping") else "fast" for name in p}))

        Args:
            tx: A transformation; or a function that makes one for a learning rate, such as `optax.adam`.
            lr: The learning rate or a schedule, if `tx` is such a function. Without it the transformation has its own
                learning rate, and `set_learning_rate` raises.
        """
        return FromOptax(tx, lr)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("cannot pickle or copy a solver, which updates arrays in their own memory: make a second one, "
                        "and pass it get_states() or a file of save_states, or restore both from a checkpoint")

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} solver, lr {self.learning_rate():g}, {len(self._params)} parameters>"

    # ---------------------------------------------------------------- parameters

    def set_parameters(
        self, param_dict: Mapping[str, Variable] | Module, reset: bool = True, retain_state: bool = False
    ) -> None:
        """Set the parameters to train.

        Args:
            param_dict: Parameters by name, such as `nn.get_parameters()`; or a Module.
            reset: Forget the parameters set before; otherwise add these to them.
            retain_state: Keep the state of parameters that were set before under the same name.
        """
        named = param_dict.get_parameters() if hasattr(param_dict, "get_parameters") else param_dict
        if not isinstance(named, Mapping):
            raise TypeError("set_parameters: expected a dict of Variables, such as nn.get_parameters() or {'w': w}, "
                            f"or a Module, got {type(param_dict).__name__}")
        new = dict(named)
        for name, p in new.items():
            if not isinstance(p, Variable):
                raise TypeError(f"set_parameters: {name!r} must be a Variable, got {type(p).__name__}")
            if not p.spec.differentiable:
                raise TypeError(f"set_parameters: {name!r} is {p.dtype.name}; only floating dtypes can be trained")
        params = OrderedDict(new) if reset else OrderedDict({**self._params, **new})
        staying = [n for n in self._params if n in params and (retain_state or n not in new)]
        if staying != list(params) or any([params.get(name) is not p for name, p in self._params.items()]):
            self._replace(params, staying)

    def get_parameters(self) -> OrderedDict[str, Variable]:
        """The parameters by name."""
        return self._params.copy()

    def remove_parameters(self, keys: Iterable[str]) -> None:
        """Stop training the parameters named in `keys`, and discard their state."""
        gone = [keys] if isinstance(keys, str) else list(keys)
        unknown = [key for key in gone if key not in self._params]
        if unknown:
            raise KeyError(f"remove_parameters: the solver has no parameter {', '.join(map(repr, unknown))}")
        left = OrderedDict((name, p) for name, p in self._params.items() if name not in gone)
        self._replace(left, list(left))

    def clear_parameters(self) -> None:
        """Discard all parameters and their state."""
        self._replace(OrderedDict(), [])

    def _replace(self, params: OrderedDict[str, Variable], staying: list[str]) -> None:
        """Train `params` from now on; those named in `staying` keep their state, and then step counters continue."""
        for p in params.values():
            if p.cell.axes is None:  # parameters have no batch axis
                p.cell.axes = ()
        with self.updating:
            old = self.named_state() if self._state is not None and staying else {}
            needs_x64 = any([p.spec.needs_x64 for p in params.values()])
            # The dtype of the learning rate's array follows that of the parameters.
            self._start_anew(old, staying, _params=params, _needs_x64=needs_x64, _held_rate=None)
            solvers.add(self)
            reached_leaves.watch(self)

    def _start_anew(self, old: Mapping[str, Any], staying: list[str], **changes: Any) -> None:
        """Change attributes, and rebuild the state, atomically: counters, and the state of parameters named in
        `staying`, are taken from `old`, a named state. The caller holds the lock."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), **changes, _state=None, _zeros=([], []))
        twin._variables = tuple(twin._params.values())  # a new object, so that training steps notice the change
        twin._packing = PackedParameters(twin._params, self.elementwise)
        updates = self.updates if staying else 0
        if old:
            states: dict[str, Any] = dict(twin.named_state())
            for key, array in states.items():
                owner = key.partition(":")[2]
                before = old.get(key)
                if before is not None and (not owner or owner in staying) and before.shape == array.shape:
                    states[key] = np.asarray(before).astype(array.dtype)
            twin.take_named(states, updates)
        elif updates:
            twin._state = SolverArrays(twin._flat_state(), updates)
        self._compile()  # harmless if nothing follows; the old one would not fit
        vars(self).update(vars(twin) | {"_update": self._update, "_joined": self._joined})

    # ---------------------------------------------------------------- learning rate

    def set_learning_rate(self, learning_rate: Rate) -> None:
        """Set the learning rate from the next update on, without recompilation.

        Args:
            learning_rate: A number; or a schedule: a function of the number of earlier updates, such as those of optax,
                or an object with `get_learning_rate(iter)`.

        Raises:
            ValueError: The learning rate is negative or not finite.
        """
        self._set_rate(learning_rate)

    def _set_rate(self, rate: Rate, name: str = "learning_rate") -> float:
        """Set the learning rate, and return that of the next update."""
        schedule = schedule_of(rate)
        lr = as_rate(rate, name) if schedule is None else scheduled(schedule, self.updates, name)
        self._lr, self._held_rate = lr if schedule is None else schedule, None
        return lr

    @property
    def has_schedule(self) -> bool:
        """True if the learning rate is a function of the number of updates."""
        return not isinstance(self._lr, float)

    @property
    def _rate(self) -> Any:
        """The learning rate as a JAX array, which is neither compiled in nor converted at each step. It is made when
        first read, because that starts JAX's backend."""
        held = self._held_rate
        if held is not None and held[0] is self._lr:  # it is no schedule
            return held[1]
        lr = self.learning_rate()
        if held is None or (held[0] is not lr and held[0] != lr):  # it may be NaN
            array: Any = np.array(lr, np.float64 if self._needs_x64 else np.float32)
            if jax.process_count() == 1:  # else a JAX array would belong to this process alone; NumPy's is for all
                with x64_if(self._needs_x64), jax.ensure_compile_time_eval():
                    array = jax.device_put(array)
            held = self._held_rate = lr, array
        return held[1]

    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        lr = self._lr
        return lr if isinstance(lr, float) else scheduled(lr, self.updates, self.rate_name)

    # ---------------------------------------------------------------- a step

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        cells = grads_of(self._variables)
        if any([cell.variable is not None for cell in cells]):
            deque(map(setattr, cells, repeat("variable"), repeat(None)), maxlen=0)
        before, zeros = self._zeros
        if cells == before and all([v.source.__class__ is Spec for v in zeros]):
            Value.put_in(cells, zeros)  # as good as new, and not made again at each step
        else:
            Value.write(cells, None)
            self._zeros = cells, Value.held_by(cells)

    def update(self, update_pre_hook: Hook | None = None, update_post_hook: Hook | None = None) -> None:
        """Update each parameter along its gradient. Parameters and state change atomically.

        Parameters that no gradient has reached since `zero_grad` stay, and so does their state, as in PyTorch where
        `grad` is None; in nnabla, momentum moves them on. `weight_decay` passes them over too.

        Gradients that nobody has read before are computed a second time if they are read afterwards.

        Args:
            update_pre_hook: Called before the update, once for all parameters.
            update_post_hook: Called after it.
        """
        if not self._variables:
            raise RuntimeError("update: the solver has no parameters; call set_parameters first")
        if reached_leaves.unwatch(self):
            warn_of_untrained("update", reached_leaves.along_with(self._variables))
        if update_pre_hook is not None:
            update_pre_hook()
        self.unused_change = ""
        check_not_traced("an update of parameters", STEP_TO_TRACE)
        with self.updating:
            values = Value.held_by(grads_of(self._variables))
            waiting = None if self.opaque else awaited(values)
            if waiting is None or not self._updates_along(waiting):
                frozen = [v.source.__class__ is Spec for v in values]
                reached = Value.arrays_of([v for v, stays in zip(values, frozen, strict=True) if not stays])
                if len(reached) == len(frozen):
                    self._update(None, (self._rate, reached))
                else:
                    arrays = iter(reached)
                    self._update(tuple(frozen), (self._rate, [None if stays else next(arrays) for stays in frozen]))
        if update_post_hook is not None:
            update_post_hook()

    def _updates_along(self, gradients: Awaited) -> bool:
        """Update along gradients in one executable that computes them too; False if they are to be computed first: in
        the quick tier, or with 64 bits where the update has none, which would change its rounding."""
        executable, arrays, places, finish = gradients
        update: InPlaceUpdate | None = self._joined.find((executable, places))
        if update is None:
            block = executable.program.block  # type: ignore[union-attr]
            if executable.is_quick or block.needs_x64 != self._needs_x64:
                return False
            gradients_by, numbers = executable.optimised(), {id(p.cell.raw()): k for k, p in enumerate(self._variables)}

            def move(*arguments: Any) -> Results:
                with set_xla_metadata(inlineable=None):  # of what it calls in turn
                    return self._flat_update(*arguments)

            def function(state: Arrays, params: Arrays, given: tuple[Any, Arrays]) -> Results:
                results = gradients_by(*given[1])
                grads = [None if i is None else results[i] for i in places]
                # XLA may not fuse the update with the gradients: their bits are the same if they are read before it.
                with set_xla_metadata(inlineable="false"):
                    new = jax.jit(move)(state, params, (given[0], grads))[:3]
                # Returning 100 small arrays that nobody reads takes a third of a step.
                others = [None if i in places else y for i, y in enumerate(results)]
                return *new, tuple(others[: max([i + 1 for i, y in enumerate(others) if y is not None], default=0)])

            among = [numbers.get(id(a)) for a in arrays]
            update = InPlaceUpdate(function, self, [], executable.program, taken=(0,), among=among)
            self._joined.keep((executable, places), update, bytes_of(len(block.steps)))
        finish(update((), (self._rate, arrays)))
        return True

    def _flat_update(self, state: Arrays, params: Arrays, arguments: tuple[Any, list[Any]]) -> Results:
        lr, grads = arguments
        tree = jax.tree.unflatten(self._structure, state)
        filled = tuple([jnp.zeros_like(p) if g is None else g for p, g in zip(params, grads, strict=True)])
        new, following = self.pure_update(tuple(params), filled, tree, lr)
        frozen = {name for name, g in zip(self._params, grads, strict=True) if g is None}
        if frozen:
            before, after = self._packing.state_apart(tree), self._packing.state_apart(following)
            owners = [name.partition(":")[2] for name in names_of_state(before, self._params, {})]
            pairs = zip(owners, jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
            chosen = [old if owner in frozen else y for owner, old, y in pairs]
            following = self._packing.state_packed(jax.tree.unflatten(jax.tree.structure(after), chosen))
            new = tuple([p if name in frozen else y for name, p, y in zip(self._params, params, new, strict=True)])
        return tuple(jax.tree.leaves(following)), new, (), None

    def pure_update(
        self,
        params: Arrays,
        grads: Arrays,
        state: Any,
        lr: Any,
        change: Callable[[Arrays, Arrays], Arrays] | None = None,
        finite: Any = None,
        facts: Mapping[str, Any] | None = None,
    ) -> tuple[Arrays, Any]:
        """One step as a pure function of arrays: the new parameters and the new state.

        Args:
            params: Arrays of the parameters, in their order.
            grads: Their gradients.
            state: The state, in the form in which it is kept.
            lr: The learning rate, a number or a traced scalar.
            change: Applied first to parameters and unscaled gradients; returns the gradients to move along.
            finite: A traced bool: if false nothing changes, except that a dynamic loss scale shrinks.
            facts: Extra arguments for transformations that need them: `value`, the loss; `value_fn`, which computes it
                for other parameters; and `direction`, the directions to subtract, for a solver that takes residuals.
        """

        def move(params: Arrays, grads: Arrays, state: Any) -> tuple[Arrays, Any]:
            tx, before = self.transformation(lr), self._named(params)
            moving = self._named(grads if change is None else change(params, grads))
            extra: dict[str, Any] = {}
            if facts and isinstance(tx, optax.GradientTransformationExtraArgs):
                extra = {**facts, "grad": self._named(grads),
                         "value_fn": lambda params: facts["value_fn"](self._listed(params))}
                if self.takes_residuals:
                    extra["direction"] = self._named(facts["direction"])
            try:
                updates, new = tx.update(moving, state, before, **extra)
            except TypeError as error:
                if "required keyword-only argument" not in str(error):
                    raise
                raise TypeError(f"{error}: the solver's update() passes gradients alone; nn.train_step also passes "
                                "value, grad and value_fn") from error
            return self._listed(optax.apply_updates(before, updates)), jax.tree.map(like, new, state)

        if self.scaling is not None:
            return scaled_update(move, self.scaling, params, grads, state, finite)
        if finite is None:
            return move(params, grads, state)
        moved: tuple[Arrays, Any] = done_if(finite, lambda: move(params, grads, state), (params, state))
        return moved

    def _init(self) -> Callable[[Arrays], Any]:
        """Returns the function that makes the state for arrays of parameters."""
        tx = self.transformation(self._initial_lr)

        def init(params: Arrays) -> Any:
            return tx.init(self._named(params))

        return init if self.scaling is None else scaled_init(init, self.scaling)

    def _named(self, arrays: Arrays) -> dict[str, Any]:
        """Arrays of the parameters by name, as transformations see them."""
        return self._packing.packed(dict(zip(self._params, arrays, strict=True)))

    def _listed(self, arrays: Mapping[str, Any]) -> Arrays:
        return tuple(self._packing.apart(arrays).values())

    @property
    def state(self) -> Any:
        """The optax state, of each parameter by name."""
        kept = self.kept_state
        with x64_if(self._needs_x64):
            return self._packing.state_apart(kept)

    @property
    def kept_state(self) -> Any:
        """The state in the form in which it is kept, with arrays that belong to several parameters."""
        arrays = self._flat_state()
        return jax.tree.unflatten(self._structure, arrays)

    def keep_state(self, state: Any) -> None:
        """Replace the state by another in the form in which it is kept."""
        arrays, self._structure = jax.tree.flatten(state)
        self._state = SolverArrays(tuple(arrays), self.updates)

    def _flat_state(self) -> Arrays:
        if self._state is None:
            check_process()
            with self.updating, x64_if(self._needs_x64):
                params = tuple(Value.read([p.cell for p in self._variables]))
                self.keep_state(first_state(self._init(), params))
        arrays: Arrays = self._state.raw()  # type: ignore[union-attr]
        return arrays

    # ---------------------------------------------------------------- gradients of backward()

    def weight_decay(self, decay_rate: float, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> None:
        """Add `decay_rate` times the parameter to each gradient.

        It changes the gradients that `backward()` has left (`p.g`). So it has no effect on a training step of
        `nn.train_step`, whose gradients are internal; give that `weight_decay=` instead.

        Raises:
            ValueError: `decay_rate` is negative or not finite.
        """
        rate = as_rate(decay_rate, "weight_decay: decay_rate")
        self._change_gradients("weight_decay", with_decay, rate, pre_hook, post_hook)

    def clip_grad_by_norm(
        self, clip_norm: float, pre_hook: Hook | None = None, post_hook: Hook | None = None
    ) -> None:
        """Clip the L2 norm of each parameter's gradient to `clip_norm`.

        It changes the gradients that `backward()` has left (`p.g`). So it has no effect on a training step of
        `nn.train_step`, whose gradients are internal; give that `clip_grad_by_norm=` instead, or
        `clip_grad_by_global_norm=` for the norm of all gradients together.

        Raises:
            ValueError: `clip_norm` is negative or not a number. Infinity clips nothing.
        """
        limit = as_real(clip_norm, "clip_grad_by_norm: clip_norm")
        if not limit >= 0:
            raise ValueError(f"clip_grad_by_norm: clip_norm must not be negative, got {clip_norm!r}")
        self._change_gradients("clip_grad_by_norm", clipped, limit, pre_hook, post_hook)

    def scale_grad(self, scale: float, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> None:
        """Multiply all gradients, those computed by `backward()` (`p.g`), by `scale`, as in `weight_decay`.

        Raises:
            ValueError: `scale` is not finite.
        """
        factor = as_real(scale, "scale_grad: scale")
        if not math.isfinite(factor):
            raise ValueError(f"scale_grad: scale must be finite, got {scale!r}")
        self._change_gradients("scale_grad", times, factor, pre_hook, post_hook)

    def _change_gradients(
        self, name: str, change: Callable[..., Any], number: float, pre_hook: Hook | None, post_hook: Hook | None
    ) -> None:
        check_process()
        if pre_hook is not None:
            pre_hook()
        with self.updating:
            self.unused_change = name
            moved = [p for p in self._variables if not p.grad.is_zero]
            cells = [p.grad for p in moved]
            params, grads = Value.read([p.cell for p in moved]), Value.read(cells)
            with x64_if(self._needs_x64):
                arrays = changed(change, tuple(params), tuple(grads), number, self.loss_scale)
            for cell in cells:
                cell.variable = None  # the cell gets another value
            Value.write(cells, arrays)
        if post_hook is not None:
            post_hook()

    def check_inf_grad(self, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> bool:
        """True if some gradient has an infinite element."""
        return self._has_inf_has_nan(pre_hook, post_hook)[0]

    def check_nan_grad(self, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> bool:
        """True if some gradient has a NaN."""
        return self._has_inf_has_nan(pre_hook, post_hook)[1]

    def check_inf_or_nan_grad(self, pre_hook: Hook | None = None, post_hook: Hook | None = None) -> bool:
        """True if some gradient has an infinite element or a NaN."""
        return any(self._has_inf_has_nan(pre_hook, post_hook))

    def _has_inf_has_nan(self, pre_hook: Hook | None, post_hook: Hook | None) -> tuple[bool, bool]:
        check_process()
        if pre_hook is not None:
            pre_hook()
        with x64_if(self._needs_x64):
            inf, nan = has_inf_has_nan(tuple(Value.read([p.grad for p in self._variables])))
        if post_hook is not None:
            post_hook()
        return bool(inf), bool(nan)

    # ---------------------------------------------------------------- loss scale

    def loss_scaling(self, scale: float | DynamicLossScale | None) -> None:
        """Divide the gradients by the loss scale in each update from now on.

        Training in float16 needs it, since there gradients below 6e-8 become zero, and above 65504 infinite. A loop of
        your own has to multiply the loss; `nn.train_step` does so by itself:

            solver.loss_scaling(nn.DynamicLossScale())
            ...
            loss.forward()
            solver.zero_grad()
            loss.backward(loss_scale=solver.loss_scale)
            solver.update()

        The arguments of `weight_decay` and `clip_grad_by_norm` refer to the gradients of the unscaled loss. With a
        scale the solver computes, and keeps its state, in at least float32. Its current state is kept. Training steps
        made earlier must be made again.

        Args:
            scale: A power of two, which stays fixed and skips no update; a DynamicLossScale, whose scale is part of the
                solver's state; or None for no scaling.

        Raises:
            TypeError: `scale` is something else.
            ValueError: It is not a power of two, or not in the range of float32.
        """
        scaling = as_loss_scale(scale, "loss_scaling: scale")
        with self.updating:
            old = {} if self._state is None else self.named_state()
            old = {name: array for name, array in old.items() if name not in NAMES_OF_LOSS_SCALE}
            self._start_anew(old, list(self._params), scaling=scaling)

    @property
    def loss_scale(self) -> float | jax.Array:
        """The number to multiply the loss by; if it is dynamic, a float32[] that may not be ready yet."""
        scaling = self.scaling
        if isinstance(scaling, DynamicLossScale):
            scale: jax.Array = self.kept_state.loss_scale.scale
            return scale
        return 1.0 if scaling is None else scaling

    @property
    def skipped_updates(self) -> int:
        """How many updates a dynamic loss scale has skipped because of infinite or NaN gradients."""
        return int(self.kept_state.loss_scale.skipped) if isinstance(self.scaling, DynamicLossScale) else 0

    # ---------------------------------------------------------------- state

    def get_states(self) -> OrderedDict[str, SolverState]:
        """A copy of each parameter's state, by parameter name: Variables in `pstate`, and the number of updates in `t`.

        The name '' holds state that belongs to no parameter, if there is any: a dynamic loss scale, other state of
        optax's transformations, and, as `t`, the number of updates if some were skipped.
        """
        with self.updating:
            named, updates = self.named_state(), self.updates
        count = int(named.pop("t")) if self._counts(named) else updates
        return states_of(named, self._params, count, updates)

    def set_states(self, states: Mapping[str, SolverState]) -> None:
        """Replace the state by that of `get_states` of the same kind of solver with these parameters: all or nothing.

        Raises:
            TypeError: `states` is not a mapping of names to states.
            ValueError: Names, shapes or dtypes differ, a counter is negative or differs between parameters, or the loss
                scale is out of its bounds.
        """
        counts = self._counts(self.named_state())
        named, count, updates = named_of(states, counts)
        if counts and count is not None:
            named["t"] = np.int32(count)
        self.take_named(named, self.updates if updates is None else updates)

    def take_named(self, named: Mapping[str, Any], updates: int) -> None:
        """Take over arrays from `named_state`, and the number of updates."""
        with self.updating, x64_if(self._needs_x64):
            before = self.state
            names = names_of_state(before, self._params, self._places)
            leaves, structure = jax.tree.flatten(before)
            fitting = fitting_states(named, dict(zip(names, leaves, strict=True)), self.scaling)
            arrays = [jnp.array(fitting[name]) for name in names]
            state = self._packing.state_packed(jax.tree.unflatten(structure, arrays))
            self._state = SolverArrays(tuple(jax.tree.leaves(state)), updates)

    def save_states(self, path: str | Path) -> None:
        """Save the state to a file, which is replaced atomically.

        Args:
            path: The file name. '.h5' and '.protobuf' files are written as nnabla writes them, and any other name as a
                safetensors file.

        Raises:
            ImportError: '.h5' without the package h5py, or '.protobuf' without protobuf.
            ValueError: nnabla's files cannot hold it: the state of a transformation without a solver in nnabla, or a
                dynamic loss scale.
            OSError: The file cannot be written.
        """
        nnablas = known_formats().states.get(Path(path).suffix)
        if nnablas is not None:
            nnablas.write(path, self.get_states())
        else:
            with self.updating:
                named, updates = self.named_state(), self.updates
            write_arrays(path, named, {"solver": type(self).__name__, "updates": updates})

    def load_states(self, path: str | Path) -> None:
        """Load the state from a file of `save_states`, or from nnabla's '.h5' or '.protobuf'.

        Raises:
            ImportError: '.h5' without the package h5py, or '.protobuf' without protobuf.
            ValueError: The file is damaged or does not fit, as in `set_states`; nothing is changed then.
            OSError: The file cannot be read.
        """
        nnablas = known_formats().states.get(Path(path).suffix)
        if nnablas is None:
            read_into(path, self._take_file)
            return
        states = {name: SolverState(*state) for name, state in nnablas.read(path).items()}
        present = self.named_state()
        for name, state in states.items():
            for what, array in state.pstate.items():
                if f"{what}:{name}" in present:
                    state.pstate[what] = array.astype(present[f"{what}:{name}"].dtype)
        try:
            self.set_states(states)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def _take_file(self, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        if "updates" not in facts:
            raise ValueError("not a file of solver states")
        self.take_named(arrays, facts["updates"])

    @property
    def updates(self) -> int:
        """The number of updates its state has seen, including those skipped by a loss scale or `on_nan`: the number
        passed to a learning rate schedule."""
        state = self._state
        return 0 if state is None else state.updates

    def named_state(self) -> dict[str, jax.Array]:
        """The arrays of the state by name: 'mean:conv/W' for one of a parameter, 't' for the count."""
        state = self.state
        named = names_of_state(state, self._params, self._places)
        return dict(zip(named, jax.tree.leaves(state), strict=True))

    def _counts(self, named: Mapping[str, Any]) -> bool:
        """True if it computes with the number of updates, which is then among the arrays of its state."""
        return "t" in named and "t" in self._places.values()


class FromOptax(Solver):
    """Updates parameters by an optax transformation; made by `Solver.from_optax`."""

    opaque = True

    def __init__(self, tx: Any, lr: Rate | None) -> None:
        super().__init__(0.0 if lr is None else lr)
        if lr is None:
            self._lr = math.nan  # unknown
        if isinstance(tx, optax.GradientTransformation):
            if lr is not None:
                raise TypeError("lr: the transformation has its own; pass lr with a function such as optax.adam")
        elif not callable(tx) or lr is None:
            raise TypeError(f"expected an optax GradientTransformation, or a function such as optax.adam with lr, "
                            f"got {tx!r} and lr={lr!r}")
        self._tx = tx
        self._own_rate = lr is None

    def transformation(self, lr: Any) -> Transformation:
        return self._tx if self._own_rate else self._tx(lr)

    def set_learning_rate(self, learning_rate: Rate) -> None:
        if self._own_rate:
            raise ValueError("cannot set the learning rate, which belongs to the transformation; "
                             "make the solver with Solver.from_optax(optax.adam, lr=...)")
        super().set_learning_rate(learning_rate)
