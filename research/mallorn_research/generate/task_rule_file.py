"""Reads TOML rule files (kinds of tasks, shapes of real networks); draws random tasks.

Rules are expressions of integer arithmetic, comparisons and functions:

    channels * 3 / 2
    multiple(filters + 8, 16)
    channels >= 4 and size / stride >= 1

Names stand for dimensions of a shape, and `/` rounds down. Expressions have Python's
syntax; they are parsed into trees and never run as Python.
"""

import ast
import operator
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mallorn.core.errors import InvalidRequest, NotFound

LONGEST: Final = 200  # characters in a text
DEEPEST: Final = 16  # opening brackets in a text
LARGEST: Final = 10**15  # limit of absolute values
NUMBER: Final = re.compile(r"\d+(e\d{1,2})?", re.ASCII)
Values = Mapping[str, int]
Operation = Callable[[int, int], int]

OPERATIONS: Final[dict[type[ast.AST], Operation]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.And: lambda left, right: int(bool(left) and bool(right)),
    ast.Or: lambda left, right: int(bool(left) or bool(right)),
}
FUNCTIONS: Final[dict[str, Operation]] = {
    "min": min,
    "max": max,
    "multiple": lambda value, of: max(of, (value + of // 2) // of * of),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: a number, a dimension's name, or an operation on two of them."""

    text: str
    number: int = 0
    name: str = ""
    operation: Operation | None = None
    sides: "tuple[Expression, ...]" = ()

    def value(self, values: Values) -> int:
        """Evaluate for a shape. Raises InvalidRequest for x / 0 or a result over LARGEST."""
        if self.name:
            return values[self.name]
        if self.operation is None:
            return self.number
        left, right = (side.value(values) for side in self.sides)
        try:
            result = int(self.operation(left, right))
        except ZeroDivisionError:
            raise _wrong_rule(self.text, "divides by zero") from None
        if abs(result) > LARGEST:
            raise _wrong_rule(self.text, "gives a number that is too large")
        return result

    @property
    def names(self) -> frozenset[str]:
        own = frozenset({self.name} if self.name else ())
        return own.union(*(side.names for side in self.sides))


def parse(text: str) -> Expression:
    """Parse an expression. Raises InvalidRequest with the reason if its syntax is wrong."""
    if len(text) > LONGEST:
        raise _wrong_rule(f"{text[:40]}...", f"is longer than {LONGEST} characters")
    if text.count("(") > DEEPEST:
        raise _wrong_rule(f"{text[:40]}...", f"has more than {DEEPEST} brackets")
    try:
        return _expression(ast.parse(text.strip(), mode="eval").body, text.strip())
    except SyntaxError as error:
        raise _wrong_rule(text, f"is no expression: {error.msg}") from None
    except ValueError:
        raise _wrong_rule(text, "has a character that an expression cannot contain") from None


def _expression(node: ast.expr, text: str) -> Expression:
    source = ast.get_source_segment(text, node) or text

    def join(operation: Operation, *sides: ast.expr) -> Expression:
        parts = (_expression(side, text) for side in sides)
        return reduce(lambda *pair: Expression(text, operation=operation, sides=pair), parts)

    match node:
        case ast.Name(name):
            return Expression(text, name=name)
        case ast.Constant() if NUMBER.fullmatch(source):
            if (number := int(Decimal(source))) > LARGEST:
                raise _wrong_rule(text, f"has {source}, which is too large")
            return Expression(text, number=number)
        case ast.BinOp(left, operation, right) if type(operation) in OPERATIONS:
            return join(OPERATIONS[type(operation)], left, right)
        case ast.Compare(left, [operation], [right]) if type(operation) in OPERATIONS:
            return join(OPERATIONS[type(operation)], left, right)
        case ast.BoolOp(operation, sides):
            return join(OPERATIONS[type(operation)], *sides)
        case ast.Call(ast.Name(name), [first, second], []) if name in FUNCTIONS:
            return join(FUNCTIONS[name], first, second)
        case ast.Call(ast.Name(name)):
            names = ", ".join(FUNCTIONS)
            raise _wrong_rule(text, f"calls {name} wrongly; the functions of two numbers are {names}")
    raise _wrong_rule(text, f"has {source!r}, which an expression cannot contain")


def _wrong_rule(text: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"the rule {text!r} {problem}", hint="mallorn dataset generate --help")


OURS: Final = Path(__file__).with_name("rules.toml")
VERSION: Final = 1
LARGEST_DIMENSION: Final = 1 << 20


class _KindIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=40, pattern=r"^[a-z0-9-]+$")
    build: str
    seeds: list[dict[str, int]] = Field(min_length=1)
    where: list[str] = []
    changes: dict[str, list[str]] = Field(min_length=1)


class _RulesIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: int
    kind: list[_KindIn] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task: shapes in `seeds`, rules to change them, and conditions on results."""

    name: str
    build: str  # a key of mallorn_research.generate.tasks_as_onnx.BUILDERS
    seeds: Sequence[Values]
    where: Sequence[Expression]
    changes: Mapping[str, Sequence[Expression]]

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(self.seeds[0])

    def allows(self, shape: Values) -> bool:
        """Return whether a shape meets `where` and every size is 1 to LARGEST_DIMENSION."""
        fits = all(1 <= size <= LARGEST_DIMENSION for size in shape.values())
        return fits and all(condition.value(shape) for condition in self.where)


def read_rules(path: Path, builders: Mapping[str, Sequence[str]]) -> list[Kind]:
    """Read the kinds of tasks in a rule file; `builders` gives each builder's dimensions.

    Raises NotFound if it cannot be opened, InvalidRequest if anything in it is invalid.
    """
    try:
        rules: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise NotFound(message, hint="mallorn dataset generate --help") from None
    except ValueError as error:
        raise _wrong(path, f"it is no TOML: {error}") from None
    if rules.get("version") != VERSION:
        raise _wrong(path, f"the rules have version {rules.get('version')!r}, not {VERSION}")
    try:
        raw_kinds = _RulesIn.model_validate(rules).kind
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    kinds = [_kind(raw, builders) for raw in raw_kinds]
    if len({kind.name for kind in kinds}) < len(kinds):
        raise _wrong(path, "two kinds of tasks have the same name")
    return kinds


def _kind(raw: _KindIn, builders: Mapping[str, Sequence[str]]) -> Kind:
    if raw.build not in builders:
        names = ", ".join(sorted(builders))
        raise InvalidRequest(f"{raw.name}: there is no builder {raw.build!r}", hint=f"known: {names}")
    dimensions = set(builders[raw.build])
    kind = Kind(
        name=raw.name,
        build=raw.build,
        seeds=raw.seeds,
        where=[parse(text) for text in raw.where],
        changes={name: [parse(text) for text in texts] for name, texts in raw.changes.items()},
    )
    for shape in raw.seeds:
        _require_same(f"{raw.name}: a seed", set(shape), dimensions)
    texts = [*kind.where, *(text for rules in kind.changes.values() for text in rules)]
    names_in_rules = {name for text in texts for name in text.names} | set(kind.changes)
    _require_same(f"{raw.name}: a rule", names_in_rules | dimensions, dimensions)
    for shape in raw.seeds:
        if not kind.allows(shape):
            raise InvalidRequest(f"{raw.name}: `where` excludes the shape {shape}", hint="change `where`")
    return kind


def _require_same(text: str, names: set[str], dimensions: set[str]) -> None:
    if names != dimensions:
        wrong = ", ".join(sorted(names ^ dimensions))
        message = f"{text} should be about {', '.join(sorted(dimensions))}, and differs in {wrong}"
        raise InvalidRequest(message, hint="mallorn dataset generate --help")


def _wrong(path: Path, error: str) -> InvalidRequest:
    return InvalidRequest(f"{path} is no rule file: {error}", hint="mallorn dataset generate --help")


MOST_CHANGES: Final = 3  # changes per task; with more, tasks stop resembling real ones
PATIENCE: Final = 200  # draws without a new task after which a kind is exhausted
GENERATED: Final = "generated-"  # prefix reserved for the names of generated networks


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random task: its kind, a key of BUILDERS for its ONNX nodes, and its dimensions."""

    kind: str
    build: str
    shape: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """The task's kind and dimensions as text, such as `dense rows=1 inner=64`."""
        return f"{self.kind} " + " ".join(f"{name}={size}" for name, size in self.shape)


def network_name(seed: int, number: int) -> str:
    """Return the name of network `number` in the dataset generated with `seed`."""
    return f"{GENERATED}{seed}-{number}"


def draw(kinds: Sequence[Kind], count: int, seed: int) -> list[Drawn]:
    """Draw `count` distinct tasks, one from each kind in turn, with the random seed `seed`.

    Raises InvalidRequest if too few distinct ones are found, or a rule fails for a shape.
    """
    rng, open_kinds = np.random.default_rng(seed), list(kinds)
    tasks: dict[Drawn, None] = {}
    while len(tasks) < count and open_kinds:
        kind = open_kinds.pop(0)
        if (task := _draw_new(kind, rng, tasks)) is not None:
            tasks[task] = None
            open_kinds.append(kind)
    if len(tasks) < count:
        message = f"the rules lead to {len(tasks)} tasks, not to {count}"
        raise InvalidRequest(message, hint=f"mallorn dataset generate --tasks {len(tasks)}")
    return list(tasks)


def _draw_new(kind: Kind, rng: np.random.Generator, tasks: dict[Drawn, None]) -> Drawn | None:
    for _ in range(PATIENCE):
        shape = dict(kind.seeds[int(rng.integers(len(kind.seeds)))])
        names = sorted(kind.changes)
        count = min(len(names), int(rng.integers(1, MOST_CHANGES + 1)))
        for index in rng.choice(len(names), size=count, replace=False):
            name = names[index]
            rules = kind.changes[name]
            shape[name] = rules[int(rng.integers(len(rules)))].value(shape)
        task = Drawn(kind.name, kind.build, tuple(shape.items()))
        if kind.allows(shape) and task not in tasks:
            return task
    return None
