"""Build options, the switches in force while functions are applied, and `with` blocks that put options in force; both
per thread and asyncio task.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Hashable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar

from .engine import is_there
from .event import AROUND, KINDS, MADE, RUN, Kind, Listener
from .messages import did_you_mean

if TYPE_CHECKING:
    from .function import Function, RuleCall
    from .op import Op
    from .placement import Mesh
    from .spec import Spec
    from .variable import Variable

P = ParamSpec("P")
R = TypeVar("R")

Layer = tuple[object, Any]
"""The key of a `with` block, and what one entry of the block has put in force."""


class WithBlock:
    """A `with` block that adds a layer to those in force in this thread or task. It can also decorate a function.

    A block removes only its own layer, so blocks need not end in the reverse order of their beginnings: in generators
    they do not. An object may be entered repeatedly, and in several threads and tasks at once.

    An interrupt (an exception that may come between any two steps) removes the layer as well. If it comes just as
    Python calls `__exit__`, so that none of that runs, the layer is removed when the exception is deallocated. Library
    code that cannot wait for this is `contained`.
    """

    _guard: weakref.ref[WithBlock] | None = None

    @property
    def _key(self) -> object:
        return self.__dict__.setdefault("_key", object())

    @staticmethod
    def layers() -> tuple[Layer, ...]:
        """The layers in force."""
        raise NotImplementedError

    @staticmethod
    def put(layers: tuple[Layer, ...]) -> None:
        """Put layers in force."""
        raise NotImplementedError

    def value(self) -> Any:
        """The value that entering the block puts in force; None for nothing."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        value, before = self.value(), self.layers()
        if value is None:
            return None
        # Not `__del__`, which would swallow interrupts: this runs only if `__exit__` did not.
        self._guard = weakref.ref(self, functools.partial(self._forgotten, self._key))
        try:
            self.put((*before, (self._key, value)))
        except BaseException:
            self.put(before)
            raise
        return value

    def __exit__(self, *_: object) -> None:
        after = None
        try:
            after = without(before := self.layers(), self._key)
            if after is not before:
                self.put(after)
        except BaseException:
            self.put(without(self.layers(), self._key) if after is None else after)
            raise
        self._guard = None

    @classmethod
    def _forgotten(cls, gone: object, _: object) -> None:
        for key, _ in cls.layers():
            if key is gone:
                cls.put(without(cls.layers(), gone))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, with each call running within such a block.

        Raises:
            TypeError: `function` cannot be called, or is a generator or coroutine, which runs in pieces.
        """
        if not callable(function):
            raise TypeError(f"function: expected a function to decorate, got {type(function).__name__}")
        if any([runs(function) for runs in _IN_PIECES]):
            raise TypeError(
                f"{function.__name__} is a generator or coroutine, which cannot be decorated; use `with` in its body"
            )

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            twin = copy.copy(self)
            twin.__dict__.pop("_key", None)
            with twin:
                return function(*args, **kwargs)

        return call


_IN_PIECES = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def without(layers: tuple[Layer, ...], key: object) -> tuple[Layer, ...]:
    """`layers` without the last one of `key`."""
    if layers and layers[-1][0] is key:
        return layers[:-1]
    for i in range(len(layers) - 1, -1, -1):
        if layers[i][0] is key:
            return layers[:i] + layers[i + 1 :]
    return layers


# ---------------------------------------------------------------- build options

Specs: TypeAlias = "tuple[Spec, ...] | None"


class Builder(Protocol):
    """Decides what becomes of an op that the gradient builder applies."""

    call: RuleCall | None
    order: int

    def seed(self, known: list[Function]) -> None:
        """Let existing functions replace equal emitted ones."""

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """The output Variable of `op` applied to `inputs`, or a tuple if it has several; `specs` are their shapes and
        dtypes, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applying:
    """Switches for the functions that users apply."""

    context: Any = None
    """The Context whose device they run on; None for JAX's default device."""
    precision: Any = None
    """Casts their inputs (`nn.precision`); None for no casts."""
    auto_forward: bool = False
    """Whether each runs as soon as it is made."""
    no_grad: bool = False
    """Whether gradients stop at them."""
    mark: Any = None
    """Marks them for rematerialisation: gradients recompute them instead of keeping their outputs."""
    body: int | None = None
    """Set while a body is captured: functions made in it have larger serial numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitting:
    """Switches for emitting gradients."""

    builder: Builder | None = None
    """Set while a gradient graph is emitted."""
    simplify: bool | frozenset[str] = True
    """Whether emitted graphs are brought to canonical form; or the names of rewriting rules to leave out."""
    segments: Callable[[Function], tuple[int, ...]] | None = None
    """Chooses, for a loop, the numbers of steps of the segments that its gradient recomputes; none to keep all values.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Switches for compiling and running graphs."""

    mesh: Mesh | None = None
    """The devices to run on; None for one device."""
    without_passes: frozenset[str] = frozenset()
    """The passes to leave out of compilation."""
    deterministic: bool = False
    """Whether everything is compiled in the same way, so that results are the same from run to run."""


_GROUPS = {"applying": Applying, "emitting": Emitting, "running": Running}
_GROUP_OF = {field.name: group for group, kind in _GROUPS.items() for field in fields(kind)}
_DEFAULTS = {group: kind() for group, kind in _GROUPS.items()}
_EVERYWHERE: dict[Kind, tuple[Listener, ...]] = dict.fromkeys(KINDS, ())
"""What listens in all threads and under all switches."""


class BuildOptions:
    """The switches in force while functions are applied; immutable, and remade at every change.

    Args:
        layers: Dicts of switches, of which later ones override earlier ones. A key that is no text is that of a
            listener: with it stand what listens and the kinds of events, or None.
    """

    __slots__ = ("applying", "emitting", "layers", "listeners", "running", "special", "watched")

    applying: Applying
    emitting: Emitting
    running: Running
    listeners: dict[Kind, tuple[Listener, ...]]
    """What listens to each kind of event, oldest first."""
    special: bool
    """Whether any switch concerns functions just after they are made; one check in place of five."""
    watched: bool
    """Whether anything listens to runs, which are then op by op; one check in place of five."""

    def __init__(self, layers: tuple[Layer, ...] = ()) -> None:
        self.layers = layers
        by_group: dict[str, dict[str, Any]] = {}
        for _, switches in layers:
            for name, value in switches.items():
                by_group.setdefault(_GROUP_OF.get(name, "listeners"), {})[name] = value
        self.listeners = _EVERYWHERE
        heard: set[Kind] = set()
        if "listeners" in by_group:
            self.listeners = dict(_EVERYWHERE)
            for entry in by_group.pop("listeners").values():
                if entry is not None:
                    listener, kinds = entry
                    heard.update(kinds)
                    for kind in kinds:
                        self.listeners[kind] += (listener,)
        self.watched = not (heard.isdisjoint(RUN) and heard.isdisjoint(AROUND))
        for name, default in _DEFAULTS.items():
            setattr(self, name, _GROUPS[name](**by_group[name]) if name in by_group else default)
        applying = self.applying
        marked = applying.mark is not None
        self.special = applying.auto_forward or applying.no_grad or marked or not heard.isdisjoint(MADE)

    def hears(self, *kinds: Kind) -> bool:
        """True if anything listens to events of these kinds."""
        return self.listeners is not _EVERYWHERE and any([self.listeners[kind] for kind in kinds])


_start = BuildOptions()
_in_force: ContextVar[BuildOptions] = ContextVar("build_options", default=_start)

build_options = _in_force.get
"""The options in force in this thread or task."""

_FROM_NOW_ON = object()


def put_layers(layers: tuple[Layer, ...]) -> None:
    """Put layers in force."""
    _in_force.set(BuildOptions(layers))


def contained(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` in a context of its own, so that its switches end with it.

    There is nothing to restore, hence no moment at which an interrupt could prevent this: C code leaves the context.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return copy_context().run(function, *args, **kwargs)

    return run


class Switched(WithBlock):
    """Sets switches within a `with` block, in a decorated function, or `from_now_on`.

    Args:
        switches: The switches by name, which are the fields of `Applying`, `Emitting` and `Running`.

    Raises:
        TypeError: There is no switch of a name; the message has it.
    """

    def __init__(self, **switches: Any) -> None:
        if not switches.keys() <= _GROUP_OF.keys():
            (name, *_) = switches.keys() - _GROUP_OF.keys()
            raise TypeError(f"there is no switch {name!r}{did_you_mean(name, _GROUP_OF)}")
        self._switches: dict[Any, Any] = switches

    @staticmethod
    def layers() -> tuple[Layer, ...]:
        """The layers in force."""
        return build_options().layers

    @staticmethod
    def put(layers: tuple[Layer, ...]) -> None:
        """Put layers in force."""
        put_layers(layers)

    def value(self) -> Any:
        """The switches that entering the block puts in force."""
        return self._switches

    def from_now_on(self, alone: bool = False) -> None:
        """Set the switches in this thread or task, until the innermost `contained` call ends, if there is one; with
        `alone` these are the only ones in force."""
        switches = self._switches
        layers = () if alone else build_options().layers
        others = tuple([(key, s) for key, s in layers if key is not _FROM_NOW_ON or s.keys() != switches.keys()])
        ends = switches.keys().isdisjoint(_GROUP_OF) and not any(switches.values())  # nothing listens any more
        put_layers(others if ends else (*others, (_FROM_NOW_ON, switches)))

    def everywhere(self) -> None:
        """Let all threads start with these switches, from before they do anything: called while nngrad is imported."""
        _start.__init__(((_FROM_NOW_ON, self._switches),))  # type: ignore[misc]


def watch(listener: Listener | None, *kinds: Kind, key: Hashable = None) -> Switched:
    """Within a `with` block, in this thread or asyncio task, call `listener` with each event of these kinds.

    To listen to functions being made, or to programs, changes nothing else. To listen to runs makes graphs run op by
    op, and to what is around whole functions ("before", "after") also leaves gradients unsimplified. Without listeners,
    making a function costs no more than a look at the options in force.

    Args:
        listener: A function of an event; None for none, within the block, under this key.
        kinds: "applied", "emitted"; "runs", "ran", "kept"; "before", "after"; "passed", "compiled". See
            `nngrad/graph/event.py`.
        key: Replaces an outer listener that was entered with an equal key; by default each listener stands by itself.
    """
    block = Switched()
    block._switches = {("listener", key or object()): None if listener is None else (listener, kinds)}
    return block


def is_heard_by(module: str, kind: Kind) -> None:
    """Have the function `hear` of a module hear all events of a kind, everywhere; the first event imports the module.
    Nothing hears them if it was left out."""

    def tell(event: Any) -> None:
        if module in sys.modules or is_there(module):
            sys.modules[module].hear(event)

    _EVERYWHERE[kind] += (tell,)


class _CollectorPause:
    """Enables Python's cyclic garbage collector when it is deallocated."""

    # A C function, so that no interrupt can come in between and leave the collector off.
    __del__ = gc.enable


_pause: ContextVar[_CollectorPause] = ContextVar("pause")


def pause_collector() -> None:
    """Disable Python's cyclic garbage collector for the rest of the innermost `contained` call.

    A graph has no cycles to collect, yet the collector would scan all objects over and over: half the time of building
    a gradient of 10,000 functions. If threads build at the same time, it is enabled again when the first of them is
    done; if the user has disabled it, it stays so.
    """
    if gc.isenabled():
        _pause.set(_CollectorPause())
        gc.disable()


# ---------------------------------------------------------------- code of the user's that has a part in what is derived

_watching: ContextVar[tuple[list[bool], ...]] = ContextVar("watching", default=())


def users_code_runs() -> None:
    """Report that user code takes part in a derivation: it may read values that have changed since, so the result must
    not be cached by structure."""
    for runs in _watching.get():
        runs.append(True)


@contained
def watching_for_users_code(derive: Callable[[], R]) -> tuple[R, bool]:
    """The result of `derive`, and whether user code took part in it."""
    runs: list[bool] = []
    _watching.set((*_watching.get(), runs))
    return derive(), bool(runs)
