"""The faults that can be planted, found in the source.

A fault replaces a segment of one file by another. It is known by a digest of the file, the function around it, the line
and what replaces what: edits elsewhere do not change it. Nothing is replaced in messages, assertions, annotations and
what is only shown.
"""

from __future__ import annotations

import ast
import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Node = ast.AST
Edit = tuple[str, Node, str]
"""A kind of fault, what is replaced, and by what."""

QUOTAS = {"rule": 62, "fact": 27, "rewriting": 27, "numbering": 27, "lock": 16}
"""How many faults of each group are planted."""
MUST_BE_FOUND = ("rule", "fact", "rewriting")

WHERE = {
    "rule": ("backward_registry/*.py", "nngrad/functions/bodies/*.py"),
    "fact": ("nngrad/functions/*.py", "nngrad/graph/axes.py", "nngrad/cpu/facts.py", "backward_registry/*.py"),
    "rewriting": ("nngrad/rewrite/*.py",),
    "numbering": ("nngrad/graph/*.py", "nngrad/autodiff/**/*.py", "nngrad/execution/**/*.py", "nngrad/cpu/*.py",
                  "nngrad/memory/*.py"),
    "lock": ("nngrad/**/*.py", "backward_registry/*.py"),
}
NOT_IN = re.compile("(html|shown|listing|messages|graph/(facts|signatures)|progress)[.]py$")
"""Files about what is shown."""
CLOCK = re.compile("monotonic|perf_counter|refcount")
"""What is compared with a number that nobody can hit."""
SHOWS = re.compile("repr|html|show|print|report|message|describe|said|words")
"""Functions about it."""


class Fault(NamedTuple):
    """One fault."""

    id: str
    group: str
    kind: str
    path: str
    """Of the file, from the root of the repository."""
    function: str
    """The functions around it, by name, with points between them; nothing at the top of the file."""
    line: int
    start: int
    stop: int
    """Where in the file it is, in bytes."""
    old: str
    new: str
    ops: tuple[str, ...] = ()
    """The ops whose rules or facts change."""

    def planted(self, source: bytes) -> bytes:
        """The file with the fault, with as many lines as before."""
        new = self.new + "\n" * (self.old.count("\n") - self.new.count("\n"))
        return source[: self.start] + new.encode() + source[self.stop :]

    def __str__(self) -> str:
        old, new = [re.sub(r"\s+", " ", text) for text in (self.old, self.new)]
        return f"{self.id} {self.kind:<10} {self.path}:{self.line} {self.function}: {old}  ->  {new or 'nothing'}"


class File:
    """A source file, with the text of each node."""

    def __init__(self, root: Path, path: Path) -> None:
        self.name = path.relative_to(root).as_posix()
        self.source = path.read_bytes()
        self.tree = ast.parse(self.source)
        self.starts = [0]
        self.lines = self.source.splitlines(keepends=True)
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: Node) -> tuple[int, int]:
        """Where a node is, in bytes."""
        return (self.starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
                self.starts[node.end_lineno - 1] + node.end_col_offset)  # type: ignore[attr-defined]

    def text(self, node: Node) -> str:
        """The source of a node."""
        start, stop = self.span(node)
        return self.source[start:stop].decode()

    def walk(self) -> Iterator[tuple[tuple[str, ...], Node, Node | None]]:
        """Every node in which a fault can be, with the functions around it and the node above."""
        stack: list[tuple[tuple[str, ...], Node, Node | None]] = [((), self.tree, None)]
        while stack:
            names, node, above = stack.pop()
            if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or is_annotation(node, above):
                continue
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.FunctionDef) and SHOWS.search(node.name):
                continue
            yield names, node, above
            inner = names
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inner = (*names, node.name)
            elif isinstance(node, ast.Lambda) and isinstance(above, ast.Call) and not names and is_rule(above):
                inner = (name_of_rule(above),)
            stack += [(inner, child, node) for child in ast.iter_child_nodes(node)][::-1]


def is_rule(node: Node) -> bool:
    """Whether it is a call that enters a function of an expression as the rule of an op."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("slopes", "gradients")


def name_of_rule(call: ast.Call) -> str:
    """How the rule of an op is named that such a call enters."""
    op = call.args[0]
    return f"{op.attr if isinstance(op, ast.Attribute) else op.id}_backward"  # type: ignore[attr-defined]


def is_annotation(node: Node, above: Node | None) -> bool:
    """Whether a node says the type of something."""
    return node in (getattr(above, "annotation", None), getattr(above, "returns", None))


# ---------------------------------------------------------------- rules

COMMUTATIVE = frozenset(
    ["add2", "mul2", "maximum2", "minimum2", "logical_and", "logical_or", "logical_xor", "equal", "not_equal"]
)


def arithmetic(file: File, node: Node, above: Node | None) -> Iterator[Edit]:
    """A sign, a number, a term."""
    text = file.text
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and not is_text(node):
        left, right = text(node.left), text(node.right)
        adds = isinstance(node.op, ast.Add)
        wrapped = f"({right})" if isinstance(node.right, ast.BinOp | ast.IfExp) else right
        yield "sign", node, f"({left} {'-' if adds else '+'} {wrapped})"
        yield "term", node, f"({left})"
        if adds:
            yield "term", node, f"({right})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(above, ast.BinOp):
        yield "sign", node, f"({text(node.operand)})"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        for side in (node.left, node.right):
            if isinstance(side, ast.Constant) and isinstance(side.value, int | float):
                yield "factor", side, repr(side.value * 3)


def rules(file: File) -> Iterator[tuple[tuple[str, ...], Edit]]:
    """A wrong rule: a sign, a factor, a missing term, inputs or gradients that are swapped, a sum that is left out."""
    for names, node, above in file.walk():
        if not names:
            continue
        text = file.text
        for edit in arithmetic(file, node, above):
            yield names, edit
        if isinstance(node, ast.Assign) and text(node.value) in ("f.inputs", "f.outputs"):
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) > 1:
                swapped = [text(e) for e in target.elts]
                swapped[:2] = swapped[1::-1]
                yield names, ("swap", target, ", ".join(swapped))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and text(node.func.value) == "F":
            if node.func.attr == "sum_to":
                yield names, ("sum_to", node, text(node.args[0]))
            a = node.args[:2]
            if len(a) == 2 and all([isinstance(x, ast.Name) for x in a]) and node.func.attr not in COMMUTATIVE:
                yield names, ("swap", Between(*a), f"{text(a[1])}, {text(a[0])}")
        value = node.value if isinstance(node, ast.Return) else node
        is_result = isinstance(node, ast.Return) or (isinstance(above, ast.Lambda) and node is above.body)
        if is_result and isinstance(value, ast.expr) and names[-1].endswith("_backward"):
            returned = value.elts if isinstance(value, ast.Tuple) else [value]
            for each in returned:
                if not isinstance(each, ast.Constant | ast.Starred | ast.List | ast.ListComp):
                    yield names, ("factor", each, f"2 * ({text(each)})")
            if len(returned) == 2 and not any([isinstance(each, ast.Constant) for each in returned]):
                yield names, ("swap", value, f"({text(returned[1])}, {text(returned[0])})")


class Between(ast.AST):
    """From one node to another."""

    def __init__(self, first: ast.expr, last: ast.expr) -> None:
        self.lineno, self.col_offset = first.lineno, first.col_offset
        self.end_lineno, self.end_col_offset = last.end_lineno, last.end_col_offset


def is_text(node: ast.BinOp) -> bool:
    """Whether it joins strings."""
    return any([isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
                for n in ast.walk(node)])  # fmt: skip


# ---------------------------------------------------------------- facts


def facts(file: File) -> Iterator[tuple[tuple[str, ...], Edit]]:
    """A wrong fact: one that is declared and does not hold, or one that is left out and matters."""
    for _, node, _ in file.walk():
        for call in getattr(node, "decorator_list", ()):
            if not isinstance(call, ast.Call):
                continue
            if file.text(call.func).rpartition(".")[2] in ("op", "declared") and isinstance(node, ast.FunctionDef):
                for edit in declared(file, call, node):
                    yield (node.name,), edit
            if file.text(call.func) == "backward":
                for keyword in call.keywords:
                    yield (node.name,), ("exact", keyword, "exact=True")
    if file.name.endswith(("axes.py", "axis_maps.py")):
        yield from numbering(file)


SWAPPED = {'"each"': '"together"', '"together"': '"each"', '"high"': '"low"', '"low"': '"high"', '"inside"': '"low"',
           '"moving"': '"in place"', '"add"': '"max"', '"max"': '"min"', '"min"': '"max"'}  # fmt: skip


def declared(file: File, call: ast.Call, function: ast.FunctionDef) -> Iterator[Edit]:
    """Wrong facts at one op."""
    given = {keyword.arg: keyword for keyword in call.keywords}
    inputs = len(function.args.posonlyargs)
    if "linear" not in given and "diagonal" in given and "multiple_results" not in given:
        yield "linear", given["diagonal"], f"{file.text(given['diagonal'])}, linear=True"
    for name, keyword in given.items():
        value = file.text(keyword.value)
        if name in ("unbounded", "broadcasts", "offset"):
            neutral = '""' if name == "offset" else "False"
            yield str(name), keyword, f"{name}={neutral}"
        elif value in SWAPPED and (name != "linear" or inputs > 1):
            yield str(name), keyword.value, SWAPPED[value]
        elif name == "linear" and value == "True" and inputs > 1:
            yield "linear", keyword.value, '"together"'
        elif name == "reads" and value > "0":
            yield "reads", keyword.value, str(int(value) - 1)
        elif name in ("axes", "powers"):
            if name == "axes" and not {"multiple_results", "diagonal"} & set(given):
                yield "axes", keyword, "diagonal=True"
            for n in ast.walk(keyword.value):
                if isinstance(n, ast.Constant) and type(n.value) is int:
                    yield str(name), n, str(n.value + 1)
                keeps = "keepdims" in ast.unparse(function.args)
                if isinstance(n, ast.Name) and n.id in ("reduces", "mixes") and keeps:
                    yield "axes", n, "mixes" if n.id == "reduces" else "reduces"


# ---------------------------------------------------------------- rewriting and numbering


def rewriting(file: File) -> Iterator[tuple[tuple[str, ...], Edit]]:
    """A wrong rewriting rule: a sign, a number, a term, a power, or a condition that is left out."""
    for names, node, above in file.walk():
        if not names:
            continue
        for edit in arithmetic(file, node, above):
            yield names, edit
        if isinstance(node, ast.BoolOp) and isinstance(above, ast.If | ast.IfExp | ast.Return | ast.comprehension):
            joint = " and " if isinstance(node.op, ast.And) else " or "
            for i in range(len(node.values)):
                kept = [f"({file.text(v)})" for k, v in enumerate(node.values) if k != i]
                yield names, ("condition", node, f"({joint.join(kept)})")
        if isinstance(node, ast.IfExp) and {file.text(node.body), file.text(node.orelse)} <= {"1", "-1", "2"}:
            yield names, ("number", node, f"({file.text(node.body)})")
            yield names, ("number", node, f"({file.text(node.orelse)})")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            yield names, ("factor", node, file.text(node.left))
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            sign = "-" if isinstance(node.op, ast.Add) else "+"
            yield names, ("sign", node, f"{file.text(node.target)} {sign}= {file.text(node.value)}")


def numbering(file: File) -> Iterator[tuple[tuple[str, ...], Edit]]:
    """A wrong numbering: one too many or too few, the wrong end, the wrong order, the wrong slot."""
    text = file.text
    for names, node, above in file.walk():
        if not names or any([SHOWS.search(name) for name in names]):
            continue
        if isinstance(node, ast.Subscript) and is_value(node):
            at = node.slice
            if isinstance(at, ast.Constant) and type(at.value) is int:
                yield names, ("slot", at, str(at.value + 1))
            if isinstance(at, ast.UnaryOp) and isinstance(at.operand, ast.Constant) and text(at) != "-1":
                yield names, ("slot", at, "0")
            if isinstance(at, ast.UnaryOp) and text(at) == "-1":
                yield names, ("slot", at, "0")
            if isinstance(at, ast.Slice) and text(at) == "::-1":
                yield names, ("order", node, text(node.value))
            elif isinstance(at, ast.Slice):
                for end in (at.lower, at.upper):
                    if end is not None:
                        yield names, ("ends", end, f"{text(end)} + 1")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and text(node.right) == "1":
            yield names, ("off by one", node, f"({text(node.left)})")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            yield names, ("slot", node, f"({text(node.operand)})")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            (given,) = node.args
            if node.func.id == "range":
                yield names, ("ends", given, f"{text(given)} - 1")
            if node.func.id == "enumerate":
                yield names, ("slot", given, f"{text(given)}, 1")
            if node.func.id in ("sorted", "reversed") and isinstance(above, ast.For | ast.comprehension | ast.Return):
                yield names, ("order", node, f"list({text(given)})")
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            op = type(node.ops[0])
            other = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}[op]
            if len(node.ops) == 1 and not CLOCK.search(text(node)):
                yield names, ("ends", node, f"{text(node.left)} {other} {text(node.comparators[0])}")


def is_value(node: ast.Subscript) -> bool:
    """Whether something is taken from a value, and no type is said."""
    return not (isinstance(node.value, ast.Name) and node.value.id[0].isupper()) and isinstance(node.ctx, ast.Load)


# ---------------------------------------------------------------- locks


def locks(file: File) -> Iterator[tuple[tuple[str, ...], Edit]]:
    """A lock that is not taken, or something that is not put back."""
    if not re.search(rb"lock|turn\(|accumulating|finally:", file.source):
        return
    for names, node, _ in file.walk():
        if not names:
            continue
        if isinstance(node, ast.With):
            for item in node.items:
                if re.search(r"(^|[._])(lock|turn|accumulating)(\(\))?$", file.text(item.context_expr)):
                    yield names, ("lock", item.context_expr, '__import__("contextlib").nullcontext()')
        if isinstance(node, ast.Try):
            for each in node.finalbody:
                yield names, ("restore", each, "pass")


FINDERS: dict[str, Callable[[File], Iterator[tuple[tuple[str, ...], Edit]]]] = {
    "rule": rules, "fact": facts, "rewriting": rewriting, "numbering": numbering, "lock": locks,
}  # fmt: skip


# ---------------------------------------------------------------- all, and some of them


def all_faults(root: Path, group: str) -> list[Fault]:
    """Every fault of a group that there is."""
    found, seen = [], Counter[str]()
    for path in sorted({p for pattern in WHERE[group] for p in root.glob(pattern)}):
        if NOT_IN.search(path.name):
            continue
        file = File(root, path)
        of_function = ops_of(file) if path.parent.name == "backward_registry" else {}
        for names, (kind, node, new) in FINDERS[group](file):
            start, stop = file.span(node)
            old = file.source[start:stop].decode()
            line = bisect_right(file.starts, start)
            function = ".".join(names)
            key = "|".join([file.name, function, kind, file.lines[line - 1].decode().strip(), old, new])
            seen[key] += 1
            digest = hashlib.sha256(f"{key}|{seen[key]}".encode()).hexdigest()[:8]
            ops = of_function.get(names[0] if names else "", ())
            if group == "fact" and not ops:
                ops = names[:1]
            if old.split() != new.split():
                found.append(Fault(digest, group, kind, file.name, function, line, start, stop, old, new, tuple(ops)))
    return found


def ops_of(file: File) -> dict[str, tuple[str, ...]]:
    """For each function of a file of rules, the ops whose rules it is part of."""
    functions = {n.name: n for n in file.tree.body if isinstance(n, ast.FunctionDef)}
    ops = {name: named(" ".join(map(file.text, n.decorator_list))) for name, n in functions.items()}
    for statement in file.tree.body:
        if isinstance(statement, ast.Expr) and is_rule(statement.value):
            ops[name_of_rule(statement.value)] = named(file.text(statement))  # type: ignore[arg-type]
        if isinstance(statement, ast.Expr | ast.For):
            text = file.text(statement)
            for name in functions:
                if re.search(rf"\b{name}\b", text):
                    ops[name] |= named(text)
    uses = {name: set(re.findall(r"\w+", file.text(n))) & set(functions) - {name} for name, n in functions.items()}
    for _ in functions:
        for name, used in uses.items():
            for other in used:
                ops[other] |= ops[name]
    return {name: tuple(sorted(each)) for name, each in ops.items()}


MADE_OF = {
    "over_gaps": "batch_eigh", "unknown_after": "batch_eigh", "vanishing": "batch_eigh",
    "eigh": "batch_eigh", "lu_factor": "batch_solve", "lu_solve": "batch_solve", "solve_triangle": "triangular_solve",
    "svd": "batch_svd", "tall_qr": "batch_qr",
}  # fmt: skip
"""Ops that are no functions of F, each with one that is made of it."""


def named(text: str) -> set[str]:
    """The functions of F in a text, or made of what is."""
    inner = {MADE_OF[name] for name in re.findall(r"\w+", text) if name in MADE_OF}
    return set(re.findall(r"\bF\.(\w+)", text)) | inner


def chosen(root: Path, seed: int = 0) -> list[Fault]:
    """As many faults of each group as it has a share of, from as many files and of as many kinds as there are."""
    return [fault for group, count in QUOTAS.items() for fault in spread(all_faults(root, group), count, seed)]


def spread(faults: Iterable[Fault], count: int, seed: int) -> list[Fault]:
    """Some faults, by turns of the files, and in each file of the kinds."""

    def rank(text: str) -> str:
        return hashlib.sha256(f"{seed}|{text}".encode()).hexdigest()

    left: dict[str, list[Fault]] = {}
    for fault in sorted(faults, key=lambda each: rank(each.id)):
        left.setdefault(fault.path, []).append(fault)
    kinds, found = Counter[str](), list[Fault]()
    while len(found) < count and left:
        for path in sorted(left, key=rank):
            if len(found) == count:
                break
            fault = min(left[path], key=lambda each: (kinds[each.kind], left[path].index(each)))
            left[path].remove(fault)
            kinds[fault.kind] += 1
            found.append(fault)
        left = {path: rest for path, rest in left.items() if rest}
    return found
