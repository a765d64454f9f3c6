"""`nn.load_exported`: functions that `nn.export` has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export as jax_export

from ...graph.conversion import array_of, converted
from ...graph.spec import x64_if
from ...graph.spelling import did_you_mean
from .container import Described, Named, read_exported
from .export import check_installed


class ExportedFunction:
    """A function that `export` has written, made by `load_exported`.

    It is called with arrays, in the order of the inputs or by their names, and returns arrays as the outputs were
    given: one, a list, or a dict by name. It may be called in what `jax.jit` traces; it has no derivatives but those
    that are among its outputs.
    """

    def __init__(
        self, path: str, described: Described, exported: jax_export.Exported, parameters: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._described = described
        self._exported = exported
        self._parameters = dict(parameters)
        self._run = jax.jit(exported.call)

    @property
    def inputs(self) -> tuple[Named, ...]:
        """Name, shape and dtype of each input."""
        return self._described.inputs

    @property
    def outputs(self) -> tuple[Named, ...]:
        """Name, shape and dtype of each output."""
        return self._described.outputs

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are stored beside the program, by name."""
        return dict(self._parameters)

    @property
    def arranged(self) -> str:
        """The structure of the results: 'one', 'list' or 'dict'."""
        return self._described.arranged

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it runs on."""
        return self._described.platforms

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers, and so takes a `seed`."""
        return self._described.draws

    @property
    def exported(self) -> jax_export.Exported:
        """JAX's own object: a function of the inputs, the parameters stored beside it, and the seed if it draws."""
        return self._exported

    def __call__(self, /, *arrays: Any, seed: int | None = None, **named: Any) -> Any:
        """Compute the outputs.

        Args:
            arrays: Arrays of the first inputs.
            seed: What random functions draw from; needed where there are some.
            named: Arrays of the others, by name.

        Raises:
            TypeError: An input is missing, or given twice, or there is none of that name.
            ValueError: An array does not fit its input, a seed is missing, or the program is for other platforms.
        """
        if "seed" in [each.name for each in self.inputs] and seed is not None:
            named, seed = {**named, "seed": seed}, None
        given = [*self._fitted(arrays, named), *self._parameters.values(), *self._seed(seed)]
        traced = any([isinstance(a, jax.core.Tracer) for a in given])
        if not traced:
            self._check_platform(given)
        with x64_if(self._described.x64 and not traced):
            results = self._run(*given)
        if self.arranged == "one":
            return results[0]
        if self.arranged == "list":
            return list(results)
        return {each.name: array for each, array in zip(self.outputs, results, strict=True)}

    def _fitted(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arrays of the inputs, in order."""
        names = [each.name for each in self.inputs]
        if len(arrays) > len(names):
            raise TypeError(f"{len(arrays)} arrays given for {len(names)} inputs: {', '.join(names)}")
        for name in named:
            if name not in names:
                raise TypeError(f"there is no input {name!r}{did_you_mean(name, names)}; inputs are {', '.join(names)}")
            if name in names[: len(arrays)]:
                raise TypeError(f"the input {name!r} is given twice, by its place and by its name")
        given = dict(zip(names, arrays, strict=False)) | dict(named)
        missing = [str(each) for each in self.inputs if each.name not in given]
        if missing:
            raise TypeError(f"missing inputs: {', '.join(missing)}")
        sizes: dict[str, tuple[int, str]] = {}
        return [_fitted(given[each.name], each, sizes) for each in self.inputs]

    def _seed(self, seed: int | None) -> list[Any]:
        if not self.draws:
            if seed is not None:
                raise TypeError("seed: nothing is drawn at random here; leave it out")
            return []
        if seed is None:
            raise ValueError("seed: the graph has random functions; pass seed=, a whole number from 0 to 2**32 - 1")
        return [converted(np.asarray(seed), np.dtype(np.uint32), "seed")]

    def _check_platform(self, given: Sequence[Any]) -> None:
        places = [a.devices() for a in given if isinstance(a, jax.Array) and a.committed]
        platform = next(iter(places[0])).platform if places else jax.default_backend()
        names = ("cuda", "rocm") if platform == "gpu" else (platform,)
        if not set(names) & set(self.platforms):
            raise ValueError(f"{self._path}: was exported for {', '.join(self.platforms)}, and arrays are on "
                             f"{platform}; export it with that among platforms=")

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs)) + (", seed" if self.draws else "")
        return f"<exported function ({inputs}) -> ({', '.join(map(str, self.outputs))})>"


def load_exported(path: str | Path, parameters: Mapping[str, Any] | None = None) -> ExportedFunction:
    """Load a function that `nn.export` has written; the graph that it came from is not needed.

    Args:
        path: The file.
        parameters: Arrays by name, in place of those in the file that are beside the program.

    Raises:
        ImportError: The package `flatbuffers` is not installed.
        OSError: The file cannot be read.
        ValueError: It is no such file, damaged, or made by a newer version; or one of `parameters` is not there, or
            does not fit.
    """
    check_installed("nn.load_exported")
    described, program, held = read_exported(path)
    try:
        exported = jax_export.deserialize(bytearray(program))
    except Exception as error:  # flatbuffers raises whatever comes up
        raise ValueError(f"{path}: JAX {jax.__version__} cannot read its program, which JAX {described.jax} has "
                         f"written ({error!r:.200})") from error
    if exported.nr_devices != 1:  # as an older JAX reads what a newer one has written elsewhere
        raise ValueError(f"{path}: was made by JAX {described.jax}, and JAX {jax.__version__} cannot read it: upgrade "
                         "JAX")
    arrays = {each.name: held[each.name] for each in described.parameters}
    specs = {each.name: each for each in described.parameters}
    for name, array in (parameters or {}).items():
        if name not in specs:
            raise ValueError(f"parameters: {path} has no parameter {name!r} beside its program"
                             f"{did_you_mean(name, list(specs))}")
        arrays[name] = _fitted(array, specs[name], {})
    count = len(described.inputs) + len(arrays) + described.draws
    if len(exported.in_avals) != count or len(exported.out_avals) != len(described.outputs):
        raise ValueError(f"{path}: a damaged file: its program takes {len(exported.in_avals)} arrays, and not {count}")
    return ExportedFunction(str(path), described, exported, arrays)


def _fitted(value: Any, each: Named, sizes: dict[str, tuple[int, str]]) -> Any:
    """`value` as an array for an input, with its shape checked.

    Args:
        value: What was given.
        each: The input.
        sizes: The sizes that have a name, and the inputs that they were seen in; those of this one are added.
    """
    array = value if isinstance(value, jax.Array) else array_of(value, each.name)
    fits = len(array.shape) == len(each.shape)
    for size, wanted in zip(array.shape, each.shape, strict=False):
        if isinstance(wanted, str):
            known, seen = sizes.setdefault(wanted, (size, each.name))
            if known != size:
                raise ValueError(f"{each.name} has shape {tuple(array.shape)}, so {wanted} is {size} there, and "
                                 f"{known} in {seen}")
            fits = fits and size > 0
        else:
            fits = fits and size == wanted
    if not fits:
        raise ValueError(f"{each.name} has shape {tuple(array.shape)}; expected {each}")
    if isinstance(array, jax.core.Tracer):
        return array.astype(jax.dtypes.canonicalize_dtype(each.dtype))
    return converted(array, each.dtype, each.name)
