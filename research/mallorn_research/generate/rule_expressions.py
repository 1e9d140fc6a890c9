"""The expression language of rule files: integer arithmetic, comparisons and functions.

    channels * 3 / 2
    multiple(filters + 8, 16)
    channels >= 4 and size / stride >= 1

Names stand for dimensions of a shape, and `/` rounds down. Expressions have Python's syntax;
they are parsed into trees and never run as Python.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Final

from mallorn.core.errors import InvalidRequest

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
            raise _wrong(self.text, "divides by zero") from None
        if abs(result) > LARGEST:
            raise _wrong(self.text, "gives a number that is too large")
        return result

    @property
    def names(self) -> frozenset[str]:
        own = frozenset({self.name} if self.name else ())
        return own.union(*(side.names for side in self.sides))


def parse(text: str) -> Expression:
    """Parse an expression. Raises InvalidRequest with the reason if its syntax is wrong."""
    if len(text) > LONGEST:
        raise _wrong(f"{text[:40]}...", f"is longer than {LONGEST} characters")
    if text.count("(") > DEEPEST:
        raise _wrong(f"{text[:40]}...", f"has more than {DEEPEST} brackets")
    try:
        return _expression(ast.parse(text.strip(), mode="eval").body, text.strip())
    except SyntaxError as error:
        raise _wrong(text, f"is no expression: {error.msg}") from None
    except ValueError:
        raise _wrong(text, "has a character that an expression cannot contain") from None


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
                raise _wrong(text, f"has {source}, which is too large")
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
            raise _wrong(text, f"calls {name} wrongly; the functions of two numbers are {names}")
    raise _wrong(text, f"has {source!r}, which an expression cannot contain")


def _wrong(text: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"the rule {text!r} {problem}", hint="mallorn dataset generate --help")
