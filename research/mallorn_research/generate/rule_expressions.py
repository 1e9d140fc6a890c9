"""The expression language of rule files: integer arithmetic, comparisons and functions.

    channels * 3 / 2
    multiple(filters + 8, 16)
    channels >= 4 and size / stride >= 1

Names stand for dimensions of a shape, and `/` rounds down. Expressions are parsed into
trees and never run as Python.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import InvalidRequest

LONGEST: Final = 200  # characters in a text
DEEPEST: Final = 16  # opening brackets in a text
LARGEST: Final = 10**15  # limit of absolute values
TOKEN: Final = re.compile(r"\s*(?:(\d+(?:e\d{1,2})?)|([a-z_]+)|(<=|>=|==|[-+*/%<>(),]))")
Values = Mapping[str, int]
Operation = Callable[[int, int], int]

ARITHMETIC: Final[dict[str, Operation]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
}
COMPARISONS: Final[dict[str, Operation]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
JOINTS: Final[dict[str, Operation]] = {
    "and": lambda one, other: int(bool(one) and bool(other)),
    "or": lambda one, other: int(bool(one) or bool(other)),
}
FUNCTIONS: Final[dict[str, Operation]] = {
    "min": min,
    "max": max,
    "multiple": lambda value, of: max(of, (value + of // 2) // of * of),
}
# Loosest binding first.
LEVELS: Final = (("or",), ("and",), tuple(COMPARISONS), ("+", "-"), ("*", "/", "%"))
OPERATIONS: Final = JOINTS | COMPARISONS | ARITHMETIC


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
    tokens: list[str] = []
    position = 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None:
            raise _wrong(text, f"has {text[position:].strip()[0]!r}, which an expression cannot contain")
        tokens.append(match.group().strip())
        position = match.end()
    parser = _Parser(text, tokens)
    expression = parser.parse_level(0)
    if parser.left:
        raise _wrong(text, f"ends before {parser.left[0]!r}")
    return expression


class _Parser:
    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text = text
        self.left = tokens

    def parse_level(self, depth: int) -> Expression:
        if depth == len(LEVELS):
            return self._atom()
        tree = self.parse_level(depth + 1)
        while self.left and self.left[0] in LEVELS[depth]:
            operation = OPERATIONS[self.left.pop(0)]
            tree = Expression(self._text, operation=operation, sides=(tree, self.parse_level(depth + 1)))
        return tree

    def _atom(self) -> Expression:
        token = self._take()
        if token[0].isdigit():
            digits, _, exponent = token.partition("e")
            if len(digits) + int(exponent or 0) > len(str(LARGEST)):
                raise _wrong(self._text, f"has {token}, which is too large")
            return Expression(self._text, number=int(digits + int(exponent or 0) * "0"))
        if token == "(":  # noqa: S105 - a bracket
            tree = self.parse_level(0)
            self._expect(")")
            return tree
        if token in OPERATIONS or not token[0].isalpha():
            raise _wrong(self._text, f"has {token!r} where a number or a name belongs")
        if self.left and self.left[0] == "(":
            if token not in FUNCTIONS:
                raise _wrong(self._text, f"calls {token}, but the functions are {', '.join(FUNCTIONS)}")
            self._expect("(")
            first = self.parse_level(0)
            self._expect(",")
            second = self.parse_level(0)
            self._expect(")")
            return Expression(self._text, operation=FUNCTIONS[token], sides=(first, second))
        return Expression(self._text, name=token)

    def _take(self) -> str:
        if not self.left:
            raise _wrong(self._text, "ends too early")
        return self.left.pop(0)

    def _expect(self, token: str) -> None:
        if (actual := self._take()) != token:
            raise _wrong(self._text, f"has {actual!r} where {token!r} belongs")


def _wrong(text: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"the rule {text!r} {problem}", hint="mallorn dataset generate --help")
