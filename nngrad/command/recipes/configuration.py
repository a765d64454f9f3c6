"""Configurations: dataclasses with documented keys, filled from TOML files and from single settings.

    @dataclass(frozen=True, kw_only=True)
    class Model:
        width: int = key(64, "units of a hidden layer", least=1)

    @dataclass(frozen=True, kw_only=True)
    class Configuration:
        steps: int = key(1000, "steps of training", least=1)
        model: Model = Model()

In TOML these are `steps = 1000`, and `width = 64` under `[model]`; in messages and settings `steps` and `model.width`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...files.replacing import read_whole
from ...graph.messages import did_you_mean

C = TypeVar("C")
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotation marks"}
COMMENTS_AT = 34
"""The column at which comments begin in a printed configuration."""


class ConfigurationError(ValueError):
    """An invalid configuration; the message names the key."""


class Bounds(NamedTuple):
    """The allowed values of a key."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    def trouble(self, value: Any) -> str:
        """The reason why a value is invalid; '' if it is valid."""
        if isinstance(value, float) and not math.isfinite(value):
            return "must be finite"
        for wrong, demand in (
            (self.least is not None and value < self.least, f"at least {self.least}"),
            (self.above is not None and value <= self.above, f"above {self.above}"),
            (self.most is not None and value > self.most, f"at most {self.most}"),
            (self.below is not None and value >= self.below, f"below {self.below}"),
        ):
            if wrong:
                return f"must be {demand}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(_as_toml, self.choices))}"
        return ""


class ConfigurationKey(NamedTuple):
    """A key of a configuration."""

    name: str
    """The name, including those of enclosing tables, such as `solver.rate`."""
    kind: type
    value: Any
    comment: str
    bounds: Bounds
    free: bool
    """Whether it may change when a run is resumed."""


def key(
    default: Any,
    comment: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Iterable[str] = (),
    free: bool = False,
) -> Any:
    """A field of a configuration, which is annotated as bool, int, float or str.

    Args:
        default: The default value.
        comment: A description, shown in a printed configuration.
        least: The inclusive lower bound.
        above: The exclusive lower bound.
        most: The inclusive upper bound.
        below: The exclusive upper bound.
        choices: The allowed texts.
        free: Whether a run may be resumed with another value, since the training does not depend on it.
    """
    bounds = Bounds(least, above, most, below, tuple(choices))
    return dataclasses.field(default=default, metadata={"comment": comment, "bounds": bounds, "free": free})


def keys_of(configuration: Any) -> dict[str, ConfigurationKey]:
    """The keys of a configuration by name, with their values; keys of tables come after top-level ones."""
    found: dict[str, ConfigurationKey] = {}
    tables = [("", configuration)]
    while tables:
        prefix, holder = tables.pop(0)
        kinds = typing.get_type_hints(type(holder))
        for field in dataclasses.fields(holder):
            name, value = prefix + field.name, getattr(holder, field.name)
            if dataclasses.is_dataclass(value):
                tables.append((f"{name}.", value))
                continue
            facts = field.metadata
            found[name] = ConfigurationKey(
                name, kinds[field.name], value, facts["comment"], facts["bounds"], facts["free"]
            )
    return found


def with_values(configuration: C, values: Mapping[str, Any]) -> C:
    """A copy of a configuration with other values, by key."""
    made: Any = configuration
    for name, value in values.items():
        fields, holders = name.split("."), [made]
        for field in fields[:-1]:
            holders.append(getattr(holders[-1], field))
        for holder, field in zip(reversed(holders), reversed(fields), strict=True):
            value = dataclasses.replace(holder, **{field: value})
        made = value
    result: C = made
    return result


def configured(default: C, file: Path | None, settings: Iterable[str]) -> C:
    """A configuration with the values of a file and then of single settings.

    Args:
        default: The configuration with default values.
        file: A TOML file, if any.
        settings: Texts such as `solver.rate=1e-4`, with values as in TOML; strings need no quotation marks.

    Raises:
        ConfigurationError: The file is not TOML, a setting is malformed, or a key is unknown, or has a value of the
            wrong type or out of range.
        OSError: The file cannot be read; the message names it.
    """
    keys = keys_of(default)
    given: dict[str, Any] = {}
    if file is not None:
        given |= _checked(keys, values_in(file), f"{file}: ")
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigurationError(f"--set {setting}: expected key=value, as in solver.rate=1e-4")
        given |= _checked(keys, {name: _value_of(text.strip(), keys.get(name))}, "--set ")
    return with_values(default, given)


def values_in(file: Path) -> dict[str, Any]:
    """The values in a TOML file by key; an empty table is an empty dict.

    Raises:
        ConfigurationError: The file is not TOML.
        OSError: The file cannot be read.
    """
    try:
        tables = [("", tomllib.loads(read_whole(file).decode()))]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: not a file in TOML: {error}") from None
    found: dict[str, Any] = {}
    while tables:
        prefix, content = tables.pop()
        for name, value in content.items():
            if isinstance(value, dict) and value:
                tables.append((f"{prefix}{name}.", value))
            else:
                found[prefix + name] = value
    return found


def _value_of(text: str, of: ConfigurationKey | None) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        found = {}
    if list(found) != ["value"]:
        if of is None or of.kind is str:
            return text
        raise ConfigurationError(f"--set {of.name}: expected {KINDS[of.kind]}, got {text!r}")
    return found["value"]


def _checked(keys: Mapping[str, ConfigurationKey], values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The values, with integers converted to floats where needed. A ConfigurationError says what is wrong."""
    checked = {}
    for name, value in values.items():
        inside = [other for other in keys if other.startswith(f"{name}.")]
        if inside and value == {}:
            continue
        if inside:
            raise ConfigurationError(f"{place}{name}: it is a table of keys: {', '.join(inside)}")
        if name not in keys:
            raise ConfigurationError(f"{place}{name}: there is no such key{_nearest(name, keys)}")
        kind, bounds = keys[name].kind, keys[name].bounds
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ConfigurationError(f"{place}{name}: expected {KINDS[kind]}, got {value!r}")
        trouble = bounds.trouble(value)
        if trouble:
            raise ConfigurationError(f"{place}{name}: {trouble}, got {_as_toml(value)}")
        checked[name] = value
    return checked


def _nearest(name: str, keys: Iterable[str]) -> str:
    known = list(keys)
    same = [other for other in known if other.rpartition(".")[2] == name.rpartition(".")[2]]
    if same:
        return f"; did you mean {' or '.join(map(repr, same))}?"
    return did_you_mean(name, known) or "; --print-config shows all keys"


def as_toml(configuration: Any, introduction: str = "") -> str:
    """A configuration as a complete TOML file, with a comment for each key."""
    lines = [f"# {line}".rstrip() for line in introduction.splitlines()]
    lines += [""] * bool(lines)
    inside = ""
    for name, entry in keys_of(configuration).items():
        outer, _, last = name.rpartition(".")
        if outer != inside:
            lines += ["", f"[{outer}]"]
            inside = outer
        comment = entry.comment
        if entry.bounds.choices:
            comment += f": {', '.join(map(_as_toml, entry.bounds.choices))}"
        lines.append(f"{last} = {_as_toml(entry.value)}".ljust(COMMENTS_AT - 2) + f"  # {comment}")
    return "\n".join(lines) + "\n"


def _as_toml(value: Any) -> str:
    # JSON writes strings as TOML does, except for one character, and likewise integers and booleans.
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def changed_keys(
    before: Mapping[str, Any], configuration: Any, chosen: Callable[[ConfigurationKey], bool] = lambda _: True
) -> list[str]:
    """The differences between a run's original values, as read by `values_in`, and a configuration: a line for each
    chosen key that differs."""
    keys = keys_of(configuration)
    lines = [
        f"{name}: {_as_toml(before[name]) if name in before else 'nothing'}, now {_as_toml(entry.value)}"
        for name, entry in keys.items()
        if chosen(entry) and (name not in before or before[name] != entry.value)
    ]
    return lines + [f"{name}: {value!r}, now there is no such key" for name, value in before.items()
                    if name not in keys and value != {}]
