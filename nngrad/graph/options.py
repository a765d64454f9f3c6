"""Build options: what is in force while functions are applied, in each thread and asyncio task."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar

from .scopes import Layer, WithBlock

if TYPE_CHECKING:
    from .function import Function, RuleCall
    from .mesh import Mesh
    from .op import Op
    from .spec import Spec
    from .variable import Variable

P = ParamSpec("P")
R = TypeVar("R")

Specs: TypeAlias = "tuple[Spec, ...] | None"


class Builder(Protocol):
    """Decides what becomes of an op that the gradient builder applies."""

    call: RuleCall | None
    order: int
    created: list[Function] | None

    def seed(self, known: list[Function]) -> None:
        """Let functions that exist already stand for what is emitted."""

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """The output Variable of `op` applied to `inputs`, or a tuple of them where it has several; `specs` are their
        shapes and dtypes, where these are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applying:
    """What becomes of the functions that users apply."""

    context: Any = None
    """The Context whose device they are meant for; None stands for JAX's default device."""
    precision: Any = None
    """What casts their inputs (`nn.precision`); None where nothing does."""
    auto_forward: bool = False
    """Whether each is run as it is made."""
    no_grad: bool = False
    """Whether gradients stop at them."""
    mark: Any = None
    """What they are marked with, so that gradients compute them again and do not keep what they give."""
    locate: Callable[[Function], None] | None = None
    """What notes on them where in the user's program that is; None if nobody asks."""
    body: int | None = None
    """Set while the function that a body is made of runs: what it makes has larger serial numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitting:
    """How gradients are emitted."""

    builder: Builder | None = None
    """Set while a gradient graph is emitted."""
    simplify: bool | frozenset[str] = True
    """Whether emitted graphs are brought to canonical form; the names of the rewriting rules that are left out, if any
    are."""
    segments: Callable[[Function], tuple[int, ...]] | None = None
    """For a loop, the numbers of steps of the segments that its gradient computes again; none where it keeps all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What watches graphs run."""

    hooks: tuple[Any, ...] = ()
    """Function hooks, the oldest first."""
    debug: Any = None
    """What debug mode looks for; None where it is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How graphs are compiled and run."""

    mesh: Mesh | None = None
    """The devices that they run on; None for one device."""
    without_passes: frozenset[str] = frozenset()
    """The passes that are left out of what is compiled."""
    deterministic: bool = False
    """Whether all that runs is compiled in one way, so that results are the same from run to run."""


_GROUPS = {"applying": Applying, "emitting": Emitting, "watching": Watching, "running": Running}
_GROUP_OF = {field.name: group for group, kind in _GROUPS.items() for field in fields(kind)}
_DEFAULTS = {group: kind() for group, kind in _GROUPS.items()}


class BuildOptions:
    """Switches that hold while functions are applied. They are made anew at every change, and never changed in use.

    Args:
        layers: What is in force, each layer a dict of switches, the later one over the earlier; hooks add up.
    """

    __slots__ = ("applying", "emitting", "layers", "running", "special", "watched", "watching")

    applying: Applying
    emitting: Emitting
    watching: Watching
    running: Running
    special: bool
    """Whether something is to be done with functions that are applied, once they are made; one look instead of five."""
    watched: bool
    """Whether hooks or debug mode watch what runs; one look instead of two."""

    def __init__(self, layers: tuple[Layer, ...] = ()) -> None:
        self.layers = layers
        given: dict[str, dict[str, Any]] = {}
        for _, switches in layers:
            for name, value in switches.items():
                group = given.setdefault(_GROUP_OF[name], {})
                group[name] = (*group.get(name, ()), *value) if name == "hooks" else value
        for name, default in _DEFAULTS.items():
            setattr(self, name, _GROUPS[name](**given[name]) if name in given else default)
        applying, watching = self.applying, self.watching
        self.watched = bool(watching.hooks) or watching.debug is not None
        self.special = (
            applying.auto_forward or applying.no_grad or watching.debug is not None
            or applying.mark is not None or applying.locate is not None
        )  # fmt: skip


_start = BuildOptions()
_in_force: ContextVar[BuildOptions] = ContextVar("build_options", default=_start)

build_options = _in_force.get
"""The options in force in this thread or task."""

_FROM_NOW_ON = object()


def put_layers(layers: tuple[Layer, ...]) -> None:
    """Let these layers be in force."""
    _in_force.set(BuildOptions(layers))


def contained(function: Callable[P, R]) -> Callable[P, R]:
    """Let `function` run in a context of its own: what it switches is as before when it ends.

    There is nothing to restore, and so no moment at which an interrupt could prevent it: the context is left in C.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return copy_context().run(function, *args, **kwargs)

    return run


def set_switches(**switches: Any) -> None:
    """Set switches from now on, in this thread or task: until the innermost `contained` call ends, if there is one."""
    layers = build_options().layers
    kept = tuple([layer for layer in layers if layer[0] is not _FROM_NOW_ON or layer[1].keys() != switches.keys()])
    put_layers((*kept, (_FROM_NOW_ON, switches)))


def switch_to(**switches: Any) -> None:
    """Let nothing be in force but these switches: until the innermost `contained` call ends, if there is one."""
    put_layers(((_FROM_NOW_ON, switches),))


def start_with(**switches: Any) -> None:
    """Set what threads start with. Called while nngrad is imported."""
    _start.__init__(((_FROM_NOW_ON, switches),))  # type: ignore[misc]


class Switched(WithBlock):
    """A `with` block within which switches are set."""

    def __init__(self, switches: dict[str, Any]) -> None:
        super().__init__()
        self._switches = switches

    @staticmethod
    def layers() -> tuple[Layer, ...]:
        """The layers in force."""
        return build_options().layers

    @staticmethod
    def put(layers: tuple[Layer, ...]) -> None:
        """Let these layers be in force."""
        put_layers(layers)

    def value(self) -> Any:
        """Returns what an entry puts in force."""
        return self._switches


def switched(**switches: Any) -> Switched:
    """Set switches within a `with` block, or in a decorated function."""
    return Switched(switches)


class _CollectorPause:
    """Switches Python's cyclic garbage collector on when it goes."""

    # A function of C, so that an interrupt cannot come in between: it would leave the collector off.
    __del__ = gc.enable


_pause: ContextVar[_CollectorPause] = ContextVar("pause")


def pause_collector() -> None:
    """Keep Python's cyclic garbage collector out of the rest of the innermost `contained` call.

    A graph holds no cycles, so there is nothing for it to find, yet it would look through all there is over and
    over: half of the time that a gradient of 10,000 functions takes to build. Where threads build at the same time it
    is on again when the first of them is done, and left off where the user has switched it off.
    """
    if gc.isenabled():
        _pause.set(_CollectorPause())
        gc.disable()


# ---------------------------------------------------------------- code of the user's that has a part in what is derived

_watching: ContextVar[tuple[list[bool], ...]] = ContextVar("watching", default=())


def users_code_runs() -> None:
    """Say that code of the user's has a part in what is being derived: it may read what has changed since, so what is
    derived is not remembered by the structure that it is derived from."""
    for runs in _watching.get():
        runs.append(True)


@contained
def watching_for_users_code(derive: Callable[[], R]) -> tuple[R, bool]:
    """What `derive` returns, and whether code of the user's had a part in it."""
    runs: list[bool] = []
    _watching.set((*_watching.get(), runs))
    return derive(), bool(runs)
