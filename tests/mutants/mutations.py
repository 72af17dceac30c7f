"""Single-line mutants of a source file: each differs from it in one expression or statement, and still parses.

What is left alone: strings, annotations, decorators and assignments to local names, whose mutants say nothing (they
change no behaviour, or nothing runs any more). Of what `Pace.counts` is told, one mutant is made: that work counts
nothing. A little more or less changes when others have their turn, and no result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_EXTREMES = {"min": "max", "max": "min"}
_CODE = "Code.UNKNOWN_SERVER_ERROR"


class Mutant(NamedTuple):
    """One change.

    Attributes:
        place: the file and the function in it, "leader.py LeaderReplica.on_fetch"; the file alone outside functions.
        before: the expression or statement that is changed, on one line.
        after: what it is changed to.
        number: of those in `place` that look alike, counted from 1.
        source: the whole file, changed.
    """

    place: str
    line: int
    before: str
    after: str
    number: int
    source: str

    @property
    def file(self) -> str:
        return self.place.partition(" ")[0]

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Stays as it is when lines move."""
        return (self.place, self.before, self.after, self.number)


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Every mutant of `source`, in the order of its lines."""
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    counts: dict[tuple[str, str, str], int] = {}
    for function, node, after in sorted(_changes(ast.parse(source), ()), key=lambda change: change[1].lineno):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        changed = text[:start] + after.encode() + text[end:]
        place = " ".join((file, ".".join(function))).strip()
        alike = (place, ast.unparse(node), after)
        counts[alike] = counts.get(alike, 0) + 1
        yield Mutant(place, node.lineno, ast.unparse(node), after, counts[alike], changed.decode())


def _changes(node: ast.AST, function: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.expr | ast.stmt, str]]:
    """What is changed, in which function, and to what."""
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    match node:
        case ast.Call(func=ast.Attribute(attr="counts"), args=[weight]):
            yield function, weight, "(0)"
            return
    if isinstance(node, ast.expr):
        for after in dict.fromkeys(_expressions(node)):
            yield function, node, f"({after})"
    elif isinstance(node, ast.stmt) and _can_go(node):
        yield function, node, "pass"
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) not in ("None", "False"):
        yield function, node, "return None"
    if isinstance(node, ast.If | ast.While | ast.IfExp) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        yield function, node.test, f"(not {ast.unparse(node.test)})"
    inner = function
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        inner = (*function, node.name)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        if not function and isinstance(value, ast.BinOp):
            continue  # a union of types
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child, inner)


def _can_go(node: ast.stmt) -> bool:
    """Whether the statement can be left out, and what is left runs."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
            return True
        case ast.Return(value=None):
            return True
        case ast.Assign(targets=targets):
            return not all(isinstance(target, ast.Name) for target in _flat(targets))
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr()):
            return True
    return False


def _flat(targets: Sequence[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        yield from _flat(target.elts) if isinstance(target, ast.Tuple) else (target,)


def _expressions(node: ast.expr) -> Iterator[str]:
    """What an expression is changed to, parts of it that are expressions themselves apart."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    yield _with(node, ops=[*ops[:at], other(), *ops[at + 1 :]])
        case ast.BoolOp(op=op, values=values):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for at in range(len(values)):
                rest = values[:at] + values[at + 1 :]
                yield ast.unparse(rest[0]) if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield ast.unparse(operand)
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            yield _with(node, op=_OPERATORS[type(op)]())
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
            yield str(value - 1)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=args):
            yield _with(node, func=ast.Name(_EXTREMES[name]))
            if len(args) > 1:
                yield from map(ast.unparse, args)
        case ast.IfExp(body=body, orelse=otherwise):
            yield ast.unparse(body)
            yield ast.unparse(otherwise)
        case ast.Attribute(value=ast.Name(id="Code")) if ast.unparse(node) != _CODE:
            yield _CODE
        case ast.Dict(keys=keys, values=entries):
            for at in range(len(keys)):
                yield _with(node, keys=keys[:at] + keys[at + 1 :], values=entries[:at] + entries[at + 1 :])


def _with(node: ast.expr, **fields: object) -> str:
    changed = copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)
