"""What `test_meshes.py` asserts on, found in a process with eight CPU devices: `python -m tests.on_meshes` prints it.

There is no limit on time in here: who starts it sets one.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.extend import build_options

Found = dict[str, Any]
ROWS, COLUMNS = 16, 6
COLLECTIVES = "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"


def batches(*rows: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal((n, COLUMNS), np.float32) for n in rows]


def network(x: nn.Variable) -> nn.Variable:
    """With batch statistics and random masks."""
    with nn.parameter_scope("network"):
        h = PF.batch_normalization(PF.affine(x, 8, name="up", with_bias=False))
        return PF.affine(F.dropout(F.tanh(h), 0.25), 1, name="down")


def critic_loss(x: nn.Variable) -> nn.Variable:
    """Of a WGAN-GP: it has a gradient, with respect to points between the batch and noise, in it."""
    share, noise = F.rand(shape=(x.shape[0], 1)), F.randn(shape=x.shape)
    at = (x * share + noise * (1 - share)).apply(need_grad=True)
    y = network(at)
    (g,) = nn.grad([F.sum(y)], [at])
    penalty = F.mean((F.sum(g**2, axis=1) ** 0.5 - 1) ** 2)
    return F.mean(network(noise)) - F.mean(network(x)) + 10 * penalty


def mean_loss(x: nn.Variable) -> nn.Variable:
    return F.mean(network(x) ** 2)


def steps_of(
    block: Any, rows: tuple[int, ...] = (ROWS, ROWS), loss: Any = critic_loss, optimizer: Any = None
) -> Found:
    """Losses and parameters after some steps."""
    nn.clear_parameters()
    nn.seed(3)
    with block:
        step = nn.train_step(loss, start, optimizer or S.Sgd(0.05))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nn.RecompilationWarning)
        losses = [float(step(batch)) for batch in batches(*rows)]
    states = {n: p.d.tolist() for n, p in nn.get_parameters(grad_only=False).items()}
    return {"losses": losses, "parameters": states}


def start() -> dict[str, nn.Variable]:
    """The parameters, from values that no stream of random numbers has a part in."""
    named = nn.get_parameters()
    for name, p in named.items():
        p.d = np.linspace(-0.5, 0.7, p.size, dtype=np.float32).reshape(p.shape) if name.endswith("W") else p.d
    return named


def held(step: Any) -> tuple[Any, Any]:
    """The arrays of parameters and of the state that a step holds."""
    state, parameters, *_ = step._solver._state.held[-1]
    return parameters, state


def text_of(step: Any, *arrays: Any) -> str:
    """The program of a step as it is compiled for each device."""
    parameters, state = held(step)
    rest = nn.execution.program.arrays_of(step._live, mesh=step._mesh) if step._live else []
    given = step._placed(arrays, step._mesh)
    jitted = step._update._executable.function
    text: str = jitted.lower(state, parameters, (step._solver._rate, given, rest)).compile().as_text()
    return text


def sizes_exchanged(text: str) -> list[tuple[str, list[int]]]:
    """Each collective operation with the numbers of elements of the arrays that it makes."""
    found = []
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(", line)
        if match:
            shapes = [[int(n) for n in dims.split(",") if n] for dims in re.findall(r"\w+\[([\d,]*)\]", match[1])]
            found.append((match[2], [int(np.prod(shape)) for shape in shapes]))
    return found


def collectives(text: str) -> list[list[Any]]:
    """Each collective operation with the largest number of elements that it makes."""
    return [[kind, max(sizes), len(sizes)] for kind, sizes in sizes_exchanged(text)]


def error_of(run: Callable[[], Any]) -> str:
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def within(run: Callable[[], Any], **axes: int) -> Callable[[], Any]:
    return nn.mesh(**axes)(run)


# ---------------------------------------------------------------- what is found


def data_parallel() -> Found:
    uneven = ROWS, ROWS, ROWS - 3
    found: Found = {"1": steps_of(nullcontext(), uneven), "8": steps_of(nn.mesh(data=8), uneven)}
    found |= {"1, even": steps_of(nullcontext()), "4": steps_of(nn.mesh(data=4))}
    for name, block in (("1", nullcontext()), ("2", nn.mesh(data=2))):
        found[f"optax, {name}"] = steps_of(block, loss=mean_loss, optimizer=optax.sgd(0.05, momentum=0.9))
    return found


def compiled_step() -> Found:
    """How often a step is compiled, what its program has in it, and where what it moves lies."""
    nn.clear_parameters()
    with nn.mesh(data=8):
        x = nn.Variable((ROWS, COLUMNS))
        loss = critic_loss(x)
        solver = S.Adam(0.01)
        step = nn.train_step(loss, nn.get_parameters(), solver, inputs=[x])
    many = batches(*[ROWS] * 12)
    for batch in many[:5]:
        step(batch)
    before = step._update._executable.function._cache_size()
    for batch in many:  # without waiting for one of them
        step(batch)
    own = held(step)
    found: Found = {"compiled": [before, step._update._executable.function._cache_size()]}
    found["places"] = sorted({str(a.sharding.spec) for a in (*own[0], *own[1])})
    found["devices"] = sorted({len(a.sharding.device_set) for a in (*own[0], *own[1])})
    statistics = [p for p in nn.get_parameters(grad_only=False).values() if not p.need_grad]
    found["statistics"] = [a.sharding.is_fully_replicated for a in (x.data.array for x in statistics)]
    found["donated"] = donates(step, many[0])
    found["collectives"] = collectives(text_of(step, many[0]))
    found["one device"] = one_device()
    kept = solver.get_states()
    solver.set_states(kept)
    step(many[0])
    found["restored"] = [len(a.sharding.device_set) for a in held(step)[1]]
    return found


def slope_of(y: nn.Variable, x: nn.Variable, order: int) -> nn.Variable:
    for _ in range(order):
        (y,) = nn.grad([F.sum(y)], [x])
    return y


def sums_of_rows() -> Found:
    """For weights that occur in several terms of a loss: numbers that a step exchanges beside the gradient's, and the
    loss and its gradients of first and second order in float64 on one device and on eight."""
    found: Found = {}
    programs = {"critic": ((16, 6), 1, 1), "PINN": ((16, 6), 1, 2), "shared": ((16, 4, 6), 3, 0),
                "convolution": ((16, 3, 4, 4), 2, 0)}  # fmt: skip
    for name, (shape, layers, order) in programs.items():
        draw, size = np.random.default_rng(2), shape[1] if len(shape) == 4 else shape[-1]
        weight = (size, size, 3, 3) if len(shape) == 4 else (size, size)
        batch, *arrays = [0.4 * draw.standard_normal(s) for s in (shape, weight, (size,))]
        for count in (1, 8):
            with nn.mesh(data=count), jax.enable_x64(True):
                x, w, b = [nn.Variable.from_numpy_array(a, need_grad=True) for a in (batch, *arrays)]
                h = x
                for _ in range(layers):
                    h = F.convolution(h, w, b, pad=(1, 1)) if h.ndim == 4 else F.affine(h, w, b, base_axis=h.ndim - 1)
                    h = F.tanh(h)
                loss = F.mean(h**2) + F.mean(slope_of(h, x, order) ** 2) + 0.01 * F.sum(w**2)
                first = nn.grad([loss], [w, b])
                values = [loss, *first, *nn.grad([F.sum(F.sin(first[0])) + F.sum(first[1] ** 2)], [w, b])]
                nn.forward_all(values)
                found[f"{name}, {count}"] = [y.d.tolist() for y in values]
                step = nn.train_step(loss, {"w": w, "b": b}, S.Sgd(0.1), inputs=[x])
                step(batch)
                if count > 1:
                    sizes = [n for _, sizes in sizes_exchanged(text_of(step, batch)) for n in sizes]
                    found[name] = sum(sizes) - w.size - b.size
    return found


def donates(step: Any, batch: np.ndarray) -> bool:
    before = [a.unsafe_buffer_pointer() for p in held(step)[0] for a in [p.addressable_shards[0].data]]
    step(batch)
    after = [a.unsafe_buffer_pointer() for p in held(step)[0] for a in [p.addressable_shards[0].data]]
    step(batch)
    again = [a.unsafe_buffer_pointer() for p in held(step)[0] for a in [p.addressable_shards[0].data]]
    return bool({*before} & ({*after} | {*again}))


def one_device() -> Found:
    """A mesh of one device is no mesh."""
    x = nn.Variable.from_numpy_array(np.ones((4, 3), np.float32))
    y = F.sum(F.sin(x))
    y.forward()
    plan = y.parent.plan
    with nn.mesh(data=1) as grid:
        inside = build_options().running.mesh
        y.forward()
    return {"grid": str(grid), "mesh": str(inside), "same plan": y.parent.plan is plan}


def layers(x: nn.Variable, column: Any = None, row: Any = None) -> nn.Variable:
    """A product, an attention and two convolutions, each divided by columns and then by rows."""
    up, down = ({"W": column, "b": column[-1:]}, {"W": row}) if column else (None, None)
    h = F.tanh(PF.affine(x, 64, name="up", sharding=up))
    h = F.reshape(PF.affine(h, 64, name="down", sharding=down), (-1, 4, 16))
    h = F.transpose(h, (1, 0, 2))  # steps come before the batch
    kinds = {"[qkv]_weight": column, "out_weight": row} if column else None
    h, _ = PF.multi_head_attention(h, h, h, 4, with_bias=False, name="attention", sharding=kinds)
    h = F.reshape(F.transpose(h, (1, 0, 2)), (-1, 4, 4, 4))
    first, second = ({"W": ("model",), "b": ("model",)}, {"W": (None, "model")}) if column else (None, None)
    h = F.tanh(PF.convolution(h, 16, (3, 3), pad=(1, 1), name="first", sharding=first))
    h = PF.convolution(h, 4, (3, 3), pad=(1, 1), name="second", sharding=second)
    return F.mean(h**2)


def tensor_parallel() -> Found:
    found: Found = {}
    for name, block, axes in (
        ("whole", nullcontext(), ()),
        ("divided", nn.mesh(data=2, model=4), ((None, "model"), ("model", None))),
        ("data", nn.mesh(data=8), ()),
    ):
        nn.clear_parameters()
        with block:
            x = nn.Variable((ROWS, COLUMNS))
            loss = layers(x, *axes)
            if name == "data":
                nn.shard("*", "data")
            for p in nn.get_parameters().values():
                p.d = 0.3 * np.cos(np.arange(p.size, dtype=np.float32)).reshape(p.shape)
            step = nn.train_step(loss, nn.get_parameters(), S.Adam(0.01), inputs=[x])
        given = batches(ROWS, ROWS, ROWS)
        found[name] = {"losses": [float(step(batch)) for batch in given]}
        if name == "whole":
            continue
        named = dict(zip(nn.get_parameters(), held(step)[0], strict=True))
        found[name]["shards"] = {n: [a.size, a.addressable_shards[0].data.size] for n, a in named.items()}
        states = step._solver.named_state().values()
        found[name]["state"] = [[a.size, a.addressable_shards[0].data.size] for a in states]
        found[name]["collectives"] = collectives(text_of(step, given[0]))
        if name == "divided":
            found["attention"] = attention()
    nn.clear_parameters()
    return found


def attention() -> Found:
    """Collective operations of an attention alone, whose weights are larger than what goes through it."""
    with nn.mesh(data=2, model=4), nn.parameter_scope("alone"):
        x = nn.shard(nn.Variable((2, 4, 32)), (None, "data"))
        kinds: dict[str, Any] = {"[qkv]_weight": (None, "model"), "out_weight": ("model",)}
        y, _ = PF.multi_head_attention(x, x, x, 4, with_bias=False, sharding=kinds)
        step = nn.train_step(F.mean(y**2), nn.get_parameters(), S.Adam(0.01), inputs=[x])
    batch = np.ones(x.shape, np.float32)
    step(batch)
    place = held(step)[0][0].sharding.spec
    return {"weight": 32 * 32, "collectives": collectives(text_of(step, batch)), "place": str(place)}


def graphs() -> Found:
    """forward, backward, update and reading, compile and to_jax, within a mesh and after it."""
    found: Found = {}
    values = batches(ROWS, 13)
    for name, block in (("1", nullcontext()), ("8", nn.mesh(data=8))):
        nn.clear_parameters()
        with block:
            nn.seed(5)
            x = nn.Variable((ROWS, COLUMNS))
            loss = critic_loss(x)
            named = start()
            solver = S.Momentum(0.05)
            solver.set_parameters(named)
            losses = []
            for _ in range(3):
                x.d = values[0]
                loss.forward()
                solver.zero_grad()
                loss.backward()
                solver.update()
                losses.append(float(loss.d))
            up, down = named["network/up/affine/W"], named["network/down/affine/W"]
            found[name] = {"losses": losses, "W": up.d.tolist(), "g": down.g.tolist()}
            if name == "8":
                x.d = values[0]
                loss.forward()
                found["batch"] = str(x.data.array.sharding.spec)
                found["parameters"] = [len(p.data.array.sharding.device_set) for p in named.values()]
            z = nn.Variable((ROWS, COLUMNS))
            h = F.sum(F.tanh(PF.affine(z, 4, name="z", w_init=np.ones((COLUMNS, 4)))) ** 2)
            (g,) = nn.grad([h], [z])
            direct, by_shape = nn.compile(g, [z]), nn.compile(lambda z: F.mean(F.exp(z)))
            as_jax = nn.to_jax(g, [z])
        found[name]["compiled"] = [np.asarray(direct(values[0])).tolist(), *[float(by_shape(v)) for v in values]]
        found[name]["to_jax"] = [np.asarray(f(values[0])).tolist() for f in (as_jax, jax.jit(as_jax))]
        z.d = values[0]
        h.forward()
        found[name]["after"] = [float(h.d), g.d.tolist()]
        with block if name == "1" else nn.mesh(data=8):
            z.d = values[0] + 1
            found[name]["read"] = g.d.tolist()
            with nn.auto_forward():
                found[name]["auto"] = float(F.mean(F.exp(z) * z).d)
            with nn.debug():
                h.forward()
                found[name]["debug"] = float(h.d)
    found["to_jax place"] = str(as_jax(values[0]).sharding.spec)
    return found


def afterwards() -> Found:
    """Loops over what was trained on a mesh, once its block is left: none of their runs is waited for by the loop."""
    nn.clear_parameters()
    with nn.mesh(data=8):
        x = nn.Variable((ROWS, COLUMNS))
        loss = critic_loss(x)
        nn.shard("*", "data")
        x.d = batches(ROWS)[0]
        loss.forward()
        first = float(loss.d)
    for _ in range(60):
        loss.forward()
        last = loss.data.array
    return {"first": first, "last": float(last), "devices": len(last.sharding.device_set)}


def uneven() -> Found:
    """What each device computes of a batch of 13 rows, in a step and in a function of JAX; and where a parameter lies
    after steps in which its gradient is divided, and it is not."""
    nn.clear_parameters()
    (batch,) = batches(13)
    with nn.mesh(data=8):
        x = nn.Variable((13, COLUMNS))
        w = nn.parameter.get_parameter_or_create("w", (COLUMNS, 16), np.ones((COLUMNS, 16), np.float32))
        loss = F.sum(F.sin(x) @ nn.shard(w, None) @ F.transpose(nn.shard(w * 2, (None, "data")), (1, 0)))
        step = nn.train_step(loss, {"w": w}, S.Sgd(0.01), inputs=[x])
        text = jax.jit(nn.to_jax(F.sum(F.sin(x) ** 2), [x])).lower(batch).compile().as_text()
    places = []
    for _ in range(4):
        step(batch)
        places.append(str(held(step)[0][0].sharding.spec))
    texts = {"step": text_of(step, batch), "to_jax": text}
    sines = {name: [line for line in text.splitlines() if " sine(" in line] for name, text in texts.items()}
    shapes = {name: [re.findall(r"= f32\[([\d,]*)\]", each)[0] for each in lines] for name, lines in sines.items()}
    return {"sines": shapes, "places": places, "compiled": step._update._executable.function._cache_size()}


def constraints() -> Found:
    """Values in the middle of a graph, and their second gradients; graphs made before the mesh."""
    found: Found = {}
    for name, block in (("1", nullcontext()), ("8", nn.mesh(data=2, model=4))):
        x = nn.Variable.from_numpy_array(batches(ROWS)[0], need_grad=True)
        y = nn.shard(F.tanh(x @ np.ones((COLUMNS, 8), np.float32)), ("data", "model"))
        (g,) = nn.grad([F.sum(y**3)], [x])
        (h,) = nn.grad([F.sum(g**2)], [x])
        (v,) = [nn.vmap(lambda x: F.sum(nn.shard(F.sin(x), None) ** 2))(x)]
        with block:
            found[name] = [g.d.tolist(), h.d.tolist(), v.d.tolist()]
            y.forward()
            if name == "8":
                found["place"] = str(y.data.array.sharding.spec)
    return found


def random_numbers() -> Found:
    """All that draws, on one device and on eight, also where rows cannot be divided evenly."""
    made = [F.randn(shape=(ROWS, 3)), F.rand(shape=(13, 2)), F.randint(0, 9, shape=(ROWS,)),
            F.dropout(nn.Variable.from_numpy_array(np.ones((ROWS, 5), np.float32)), 0.4)]  # fmt: skip
    found: Found = {}
    for name, block in (("1", nullcontext()), ("8", nn.mesh(data=8))):
        nn.seed(11)
        with block:
            nn.forward_all(made)
            found[name] = [y.d.tolist() for y in made]
    return found


def exchanges() -> Found:
    """Functions whose programs exchange elements between devices, and their gradients of order 2."""
    found: Found = {}
    for name, block in (("1", nullcontext()), ("8", nn.mesh(data=8))):
        x = nn.Variable.from_numpy_array(batches(ROWS)[0], need_grad=True)
        rows = np.arange(ROWS)[::-1, None] % 5
        y = F.top_k_data(x, 2) + F.gather(x, rows[:, :1] % 2, axis=1) + F.cumsum(F.sort(x, axis=0), axis=0)[:, :1]
        y = y * F.max_pooling(F.reshape(x, (ROWS, 1, 2, 3)), (1, 3))[:, 0, 0]
        (g,) = nn.grad([F.sum(F.sin(y))], [x])
        (h,) = nn.grad([F.sum(g**2)], [x])
        with block:
            nn.forward_all([y, g, h])
            found[name] = [v.d.tolist() for v in (y, g, h)]
    return found


def memory() -> Found:
    """What a report says of one device."""
    found: Found = {}
    for name, block in (("1", nullcontext()), ("8", nn.mesh(data=8))):
        with block:
            x = nn.Variable.from_numpy_array(np.ones((512, 64), np.float32), need_grad=True)
            h = x
            for _ in range(4):
                h = F.sin(h @ np.full((64, 64), 0.02, np.float32))
            (g,) = nn.grad([F.sum(h)], [x])
            found[name] = nn.memory_report(g).compiled
            found[f"{name}, value"] = float(g.d.mean())
    return found


def refused() -> Found:
    """Errors, each as the user sees it."""
    nn.clear_parameters()
    x = nn.Variable((ROWS, COLUMNS))
    y = F.sum(PF.affine(x, 10))
    on_one = nn.Context("cpu", device_id=3)
    with nn.context_scope(on_one):
        z = F.sum(F.sin(x))

    class Twice(nn.nnabla.PythonFunction):
        def setup_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].reset_shape(inputs[0].shape, True)

        def min_outputs(self) -> int:
            return 1

        def forward_impl(self, inputs: Any, outputs: Any) -> None:
            outputs[0].data = np.sin(np.asarray(inputs[0].data))

    on_host = F.sum(Twice()(x))
    elsewhere = jax.device_put(
        np.ones((ROWS, COLUMNS), np.float32),
        NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[:4]), ("data",)), PartitionSpec("data")),
    )

    def nested() -> None:
        with nn.mesh(data=8):
            pass

    def of_another_mesh() -> None:
        nn.compile(y, [x])(elsewhere)

    def asked_for(**axes: int) -> Callable[[], Any]:
        def enter() -> None:
            with nn.mesh(**axes):
                pass

        return enter

    def host() -> None:
        on_host.forward()
        print(on_host.d)

    shard = nn.shard
    return {
        "sizes": error_of(asked_for(data=4, model=3)),
        "fewer": error_of(lambda: nn.mesh(jax.devices(), data=4).__enter__()),
        "left": error_of(asked_for(data=-1, model=3)),
        "kind": error_of(lambda: nn.mesh(data="8")), "device": error_of(lambda: nn.mesh([0, 1], data=2)),
        "nested": error_of(within(nested, data=8)), "another mesh": error_of(within(of_another_mesh, data=8)),
        "context": error_of(within(z.forward, data=8)), "host": error_of(within(host, data=8)),
        "no such axis": error_of(within(lambda: shard("*/W", (None, "model")), data=8)),
        "not divisible": error_of(within(lambda: shard("*/b", ("data",)), data=8)),
        "not divisible later": error_of(lambda: [shard("*/b", ("data",)), within(y.forward, data=8)()]),
        "step": error_of(within(lambda: nn.train_step(y, nn.get_parameters(), S.Sgd(), inputs=[x]), data=8)),
        "too long": error_of(lambda: shard("*/b", (None, "model"))), "no match": error_of(lambda: shard("b/*", "data")),
        "spec": error_of(lambda: shard("*/W", 3)),
        "names": sorted(nn.get_parameters()),
    }  # fmt: skip


def scopes() -> Found:
    """A mesh belongs to the thread and the block that it was entered in."""
    seen: Found = {}
    thread = threading.Thread(target=lambda: seen.update(thread=str(build_options().running.mesh)))

    @nn.mesh(data=-1, model=2)
    def decorated() -> str:
        return str(build_options().running.mesh)

    with nn.mesh(data=8):
        thread.start()
        thread.join()
        seen["block"] = str(build_options().running.mesh)
    with nn.mesh(data=2) as grid:
        seen["fewer"] = str(grid.devices.tolist())
    seen |= {"after": str(build_options().running.mesh), "decorated": decorated(), "once more": decorated()}
    return seen


FINDINGS = (
    data_parallel, compiled_step, tensor_parallel, graphs, afterwards, uneven, constraints, exchanges,
    random_numbers, memory, refused, scopes, sums_of_rows,
)  # fmt: skip


def main() -> None:
    """Print what is found, by the names of the functions; those that are given, or all."""
    chosen = [find for find in FINDINGS if find.__name__ in sys.argv[1:] or not sys.argv[1:]]
    print(json.dumps({find.__name__: find() for find in chosen}))


if __name__ == "__main__":
    main()
