"""The small language of rules: sums, products, comparisons and three functions over named whole numbers.

    channels * 3 / 2
    multiple(filters + 8, 16)
    channels >= 4 and size / stride >= 1

Texts are parsed here and become trees of plain values; nothing in them is ever run as Python.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import InvalidRequest

LONGEST: Final = 200  # characters of a text
DEEPEST: Final = 16  # nested brackets
LARGEST: Final = 10**15
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
    """A parsed text: a number, a name, or an operation on two expressions."""

    text: str
    number: int = 0
    name: str = ""
    operation: Operation | None = None
    sides: "tuple[Expression, ...]" = ()

    def value(self, values: Values) -> int:
        """The value; divisions round down. Raises InvalidRequest if it is undefined."""
        if self.name:
            return values[self.name]
        if self.operation is None:
            return self.number
        one, other = (side.value(values) for side in self.sides)
        try:
            found = int(self.operation(one, other))
        except ZeroDivisionError:
            raise _wrong(self.text, "divides by zero") from None
        if abs(found) > LARGEST:
            raise _wrong(self.text, "comes to a number that is too large")
        return found

    @property
    def names(self) -> frozenset[str]:
        """The names that occur in it."""
        own = frozenset({self.name} if self.name else ())
        return own.union(*(side.names for side in self.sides))


def parse(text: str) -> Expression:
    """Parse a text. Raises InvalidRequest, with the place, for a text that is not valid."""
    if len(text) > LONGEST:
        raise _wrong(f"{text[:40]}...", f"is longer than {LONGEST} characters")
    if text.count("(") > DEEPEST:
        raise _wrong(f"{text[:40]}...", f"has more than {DEEPEST} brackets")
    parser = _Parser(text, _tokens(text))
    found = parser.level(0)
    if parser.left:
        raise _wrong(text, f"ends before {parser.left[0]!r}")
    return found


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None:
            raise _wrong(text, f"has {text[at:].strip()[0]!r}, which means nothing here")
        found.append(match.group().strip())
        at = match.end()
    return found


class _Parser:
    """A recursive-descent parser, with one method per level of precedence."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text = text
        self.left = tokens

    def level(self, depth: int) -> Expression:
        if depth == len(LEVELS):
            return self._atom()
        found = self.level(depth + 1)
        while self.left and self.left[0] in LEVELS[depth]:
            operation = OPERATIONS[self.left.pop(0)]
            found = Expression(self._text, operation=operation, sides=(found, self.level(depth + 1)))
        return found

    def _atom(self) -> Expression:
        token = self._take()
        if token[0].isdigit():
            return Expression(self._text, number=_number(self._text, token))
        if token == "(":  # noqa: S105 - a bracket
            found = self.level(0)
            self._expect(")")
            return found
        if token in OPERATIONS or not token[0].isalpha():
            raise _wrong(self._text, f"has {token!r} where a number or a name belongs")
        if self.left and self.left[0] == "(":
            if token not in FUNCTIONS:
                raise _wrong(self._text, f"calls {token}, which is none of {', '.join(FUNCTIONS)}")
            self._expect("(")
            one = self.level(0)
            self._expect(",")
            other = self.level(0)
            self._expect(")")
            return Expression(self._text, operation=FUNCTIONS[token], sides=(one, other))
        return Expression(self._text, name=token)

    def _take(self) -> str:
        if not self.left:
            raise _wrong(self._text, "ends too early")
        return self.left.pop(0)

    def _expect(self, token: str) -> None:
        if (found := self._take()) != token:
            raise _wrong(self._text, f"has {found!r} where {token!r} belongs")


def _number(text: str, token: str) -> int:
    digits, _, exponent = token.partition("e")
    if len(digits) + int(exponent or 0) > len(str(LARGEST)):
        raise _wrong(text, f"has {token}, which is too large")
    return int(digits + int(exponent or 0) * "0")


def _wrong(text: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"the rule {text!r} {what}", hint="mallorn dataset generate --help")
