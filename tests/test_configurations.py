"""Configurations of recipes: what a file and single settings say, what is wrong with them, and how they are printed."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nngrad.command import cli
from nngrad.command.recipes import NAMES
from nngrad.command.recipes.configuration import (
    ConfigurationError,
    as_toml,
    changed_keys,
    configured,
    key,
    keys_of,
    values_in,
    with_values,
)


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = key(1e-3, "how fast", above=0, below=10)
    name: str = key("plain", "of which kind", choices=("plain", "with \"quotes\""))


@dataclass(frozen=True, kw_only=True)
class Outer:
    steps: int = key(10, "how many", least=1, most=1000)
    deep: bool = key(False, "whether it is deep", free=True)
    inner: Inner = Inner()
    text: str = key("a", "a text")
    other: Inner = Inner(rate=2.0)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_then_file_then_settings(tmp_path: Path) -> None:
    file = written(tmp_path / "a.toml", 'steps = 20\n[inner]\nrate = 1\nname = "with \\"quotes\\""\n[other]\n')
    found = configured(Outer(), file, ["steps=30", "other.rate = 5e-1", "deep=true", "text=plain words", 'text="b"'])
    assert found == Outer(
        steps=30, deep=True, inner=Inner(rate=1.0, name='with "quotes"'), text="b", other=Inner(rate=0.5)
    )
    assert type(found.inner.rate) is float
    assert configured(Outer(), None, ["text=two words"]).text == "two words"
    assert configured(Outer(), None, []) == Outer()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("stepps=3", "--set stepps: there is no such key; did you mean 'steps'?"),
        ("rate=3", "did you mean 'inner.rate' or 'other.rate'?"),
        ("iner.rate=3", "'inner.rate'"),
        ("unlike.anything=3", "--print-config shows all keys"),
        ("steps.more=3", "--set steps.more: there is no such key"),
        ("steps=1.5", "--set steps: expected a whole number, got 1.5"),
        ("steps=true", "expected a whole number, got True"),
        ("steps='3'", "expected a whole number, got '3'"),
        ("steps=three", "--set steps: expected a whole number, got 'three'"),
        ("deep=1", "expected true or false, got 1"),
        ("inner.rate=fast", "expected a number, got 'fast'"),
        ("inner.rate=nan", "must be finite, got nan"),
        ("inner.rate=-inf", "must be finite, got -inf"),
        ("inner.rate=0", "inner.rate: must be above 0, got 0.0"),
        ("inner.rate=10.0", "inner.rate: must be below 10, got 10.0"),
        ("steps=0", "must be at least 1, got 0"),
        ("steps=1001", "must be at most 1000, got 1001"),
        ("text=3", "expected a text in quotation marks, got 3"),
        ("inner.name=other", 'must be one of "plain", "with \\"quotes\\"", got "other"'),
        ("inner=3", "--set inner: it is a table of keys: inner.rate, inner.name"),
        ("steps", "--set steps: expected key=value"),
        ("=3", "--set =3: expected key=value"),
        ("steps=3\nnext=4", "expected a whole number"),
    ],
)
def test_wrong_settings_name_the_key(setting: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        configured(Outer(), None, [setting])
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps = ", "not a file in TOML"),
        ("\x00\xff", "not a file in TOML"),
        ("step = 3", "run.toml: step: there is no such key; did you mean 'steps'?"),
        ("[iner]\n", "run.toml: iner: there is no such key"),
        ("[inner.deeper]\nrate = 3\n", "inner.deeper.rate: there is no such key; did you mean 'inner.rate'"),
        ("inner = 3", "inner: it is a table of keys"),
        ("steps = [3]", "expected a whole number, got [3]"),
        ("[[inner]]\nrate = 3", "inner: it is a table of keys"),
        ("steps = 2026-01-01", "expected a whole number"),
        ("[steps]\n", "expected a whole number, got {}"),
    ],
)
def test_wrong_files_are_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(text.encode("latin1"))
    with pytest.raises(ConfigurationError) as raised:
        configured(Outer(), file, [])
    assert said in str(raised.value)
    assert str(file) in str(raised.value)


def test_what_is_printed_is_read_again(tmp_path: Path) -> None:
    odd = Outer(steps=7, deep=True, inner=Inner(rate=1e-17), text='"\\ \n\t\x7f\x01é\U0001f600#', other=Inner(rate=3.0))
    text = as_toml(odd, "What it is.\n\nAnd more.")
    assert text.startswith("# What it is.\n#\n# And more.\n\nsteps = 7 ")
    file = written(tmp_path / "a.toml", text)
    assert configured(Outer(), file, []) == odd
    assert list(keys_of(odd)) == ["steps", "deep", "text", "inner.rate", "inner.name", "other.rate", "other.name"]
    assert all(entry.comment in text for entry in keys_of(odd).values())
    assert changed_keys(values_in(file), odd) == []


def test_differences(tmp_path: Path) -> None:
    before = values_in(written(tmp_path / "a.toml", as_toml(Outer()) + "old = 3\n"))
    now = with_values(Outer(), {"steps": 11, "deep": True, "inner.rate": 0.5})
    lines = ["steps: 10, now 11", "inner.rate: 0.001, now 0.5", "other.old: 3, now there is no such key"]
    assert changed_keys(before, now, lambda entry: not entry.free) == lines
    assert "deep: false, now true" in changed_keys(before, now)
    del before["text"]
    assert 'text: nothing, now "a"' in changed_keys(before, now)


# ---------------------------------------------------------------- of the recipes


@pytest.mark.parametrize("name", NAMES)
def test_each_recipe_prints_a_complete_configuration(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", name, "--print-config", "--set", "steps=7", "--set", "solver.rate=1e-5"]) == 0
    printed = capsys.readouterr().out
    read: dict[str, Any] = tomllib.loads(printed)
    assert (read["recipe"], read["steps"], read["solver"]["rate"]) == (name, 7, 1e-5)
    from nngrad.command.recipes.run import recipe_named

    defaults = recipe_named(name).defaults
    keys = keys_of(defaults)
    assert all(f"# {entry.comment}" in printed for entry in keys.values())
    assert all(entry.comment and not entry.bounds.trouble(entry.value) for entry in keys.values())
    flat = {field.name for field in dataclasses.fields(defaults)}
    assert read.keys() == flat


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code, said in (
        (["gan", "--set", "solver.rat=1"], 2, "nngrad train: --set solver.rat: there is no such key; did you mean"),
        (["gan", "--set", "recipe=pinn"], 2, 'recipe: must be one of "gan", got "pinn"'),
        (["pinn", "--config", str(tmp_path / "none.toml")], 1, "none.toml: No such file"),
        (["pinn", "--config", str(tmp_path)], 1, "Is a directory"),
    ):
        assert cli.main(["train", *arguments]) == code
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "cake"])
    assert stopped.value.code == 2
