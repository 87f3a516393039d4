"""The grammar of condition expressions: text to tokens to a tree, names resolved on the way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .reserved import RESERVED_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>[0-9]+)|(?P<sign><>|<=|>=|[=<>()\[\],.+-])|(?P<end>\Z))"
)
COMPARATORS: Final = ("=", "<>", "<", "<=", ">", ">=")
FUNCTIONS: Final = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}


class ExpressionError(ValueError):
    """An expression that the service would refuse, with its words."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `kind` is a group of the pattern above."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Path:
    """A document path: names and list indexes."""

    parts: tuple[str | int, ...]

    def __str__(self) -> str:
        return "[" + ", ".join(f"[{p}]" if isinstance(p, int) else p for p in self.parts) + "]"


@dataclass(frozen=True, slots=True)
class ValueRef:
    """A ``:placeholder`` of ExpressionAttributeValues."""

    ref: str


@dataclass(frozen=True, slots=True)
class Size:
    """``size(path)``."""

    path: Path


Operand = Path | ValueRef | Size


@dataclass(frozen=True, slots=True)
class Compare:
    """``left sign right``."""

    sign: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    """``operand BETWEEN low AND high``."""

    operand: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class In:
    """``operand IN (option, ...)``."""

    operand: Operand
    options: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function that yields true or false."""

    function: str
    arguments: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions joined by ``AND`` or ``OR``."""

    word: str
    items: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT item``."""

    item: Condition


Condition = Compare | Between | In | Call | Junction | Not


def tokenize(text: str, pattern: re.Pattern[str] = _TOKEN) -> list[Token]:
    """The tokens of an expression, an ``end`` token last."""
    tokens: list[Token] = []
    position = 0
    while True:
        match = pattern.match(text, position)
        if match is None:
            token = text[position:].lstrip()[:1]
            raise ExpressionError(f'Syntax error; token: "{token}", near: "{text[position:][:12]}"')
        kind = match.lastgroup or "end"
        tokens.append(Token(kind, match.group(kind)))
        if kind == "end":
            return tokens
        position = match.end()


@dataclass(slots=True)
class Parser:
    """A recursive-descent parser over tokens; collects the placeholders that it met."""

    tokens: list[Token]
    names: Mapping[str, str]
    used_names: set[str] = field(default_factory=set)
    used_values: set[str] = field(default_factory=set)
    roots: set[str] = field(default_factory=set)
    typed: list[tuple[str, str, str]] = field(default_factory=list)
    """Operator, type letter and placeholder of values that take one type only."""
    position: int = 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.position]

    def take(self) -> Token:
        """Read one token."""
        token = self.tokens[self.position]
        self.position += 1
        return token

    def at_word(self, *words: str) -> bool:
        """Whether the next token is one of these keywords, in any case."""
        token = self.token
        return token.kind == "word" and token.text.upper() in words

    def accept(self, sign: str) -> bool:
        """Read `sign` where it comes next."""
        if self.token == Token("sign", sign):
            self.position += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        """Read `sign` or refuse."""
        if not self.accept(sign):
            raise self.syntax_error()

    def end(self) -> None:
        """Refuse what is left over."""
        if self.token.kind != "end":
            raise self.syntax_error()

    def syntax_error(self) -> ExpressionError:
        """The refusal of the next token."""
        around = self.tokens[max(0, self.position - 1) : self.position + 2]
        near = " ".join(token.text for token in around).strip()
        token = self.token.text if self.token.kind != "end" else "<EOF>"
        return ExpressionError(f'Syntax error; token: "{token}", near: "{near}"')

    def condition(self) -> Condition:
        """``a OR b``: the weakest binding."""
        return self._joined("OR", lambda: self._joined("AND", self._negation))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        items = [part()]
        while self.at_word(word):
            self.take()
            items.append(part())
        return items[0] if len(items) == 1 else Junction(word, tuple(items))

    def _negation(self) -> Condition:
        if self.at_word("NOT"):
            self.take()
            return Not(self._negation())
        if self.accept("("):
            inner = self.condition()
            self.expect(")")
            return inner
        return self._predicate()

    def _predicate(self) -> Condition:
        if self.token.kind == "word" and self.tokens[self.position + 1].text == "(":
            name = self.token.text
            if name != "size":
                return self._call(name)
        left = self.operand()
        if self.at_word("BETWEEN"):
            self.take()
            low = self.operand()
            if not self.at_word("AND"):
                raise self.syntax_error()
            self.take()
            return Between(left, *_distinct("BETWEEN", left, low, self.operand()))
        if self.at_word("IN"):
            self.take()
            self.expect("(")
            return In(left, _distinct("IN", left, *self._operands()))
        if self.token.kind == "sign" and self.token.text in COMPARATORS:
            sign = self.take().text
            return Compare(sign, left, *_distinct(sign, left, self.operand()))
        raise self.syntax_error()

    def _call(self, name: str) -> Call:
        if name not in FUNCTIONS:
            raise ExpressionError(f"Invalid function name; function: {name}")
        self.position += 2
        arguments = self._operands()
        if len(arguments) != FUNCTIONS[name]:
            raise ExpressionError(
                "Incorrect number of operands for operator or function; operator or function: "
                f"{name}, number of operands: {len(arguments)}"
            )
        if name.startswith("attribute_") and not isinstance(arguments[0], Path):
            raise ExpressionError(
                "Operator or function requires a document path; operator or function: " + name
            )
        return Call(name, (arguments[0], *_distinct(name, *arguments)))

    def _operands(self) -> tuple[Operand, ...]:
        operands = [self.operand()]
        while self.accept(","):
            operands.append(self.operand())
        self.expect(")")
        return tuple(operands)

    def operand(self) -> Operand:
        """A path, a placeholder value or ``size(path)``."""
        token = self.token
        if token.kind == "value":
            return self.value()
        if token.text == "size" and self.tokens[self.position + 1].text == "(":
            self.position += 2
            path = self.path()
            self.expect(")")
            return Size(path)
        return self.path()

    def value(self) -> ValueRef:
        """A placeholder value."""
        token = self.take()
        self.used_values.add(token.text)
        return ValueRef(token.text)

    def path(self) -> Path:
        """A document path, its ``#placeholders`` resolved."""
        root = self._name()
        self.roots.add(root)
        parts: list[str | int] = [root]
        while True:
            if self.accept("."):
                parts.append(self._name())
            elif self.accept("["):
                if self.token.kind != "number":
                    raise self.syntax_error()
                parts.append(int(self.take().text))
                self.expect("]")
            else:
                return Path(tuple(parts))

    def _name(self) -> str:
        token = self.token
        if token.kind == "name":
            self.take()
            self.used_names.add(token.text)
            name = self.names.get(token.text)
            if name is None:
                raise ExpressionError(
                    "An expression attribute name used in the document path is not defined; "
                    f"attribute name: {token.text}"
                )
            return name
        if token.kind == "quoted":
            return self.take().text
        if token.kind != "word":
            raise self.syntax_error()
        if token.text.lower() in RESERVED_WORDS:
            raise ExpressionError(
                f"Attribute name is a reserved keyword; reserved keyword: {token.text}"
            )
        return self.take().text


def _distinct(operator: str, first: Operand, *others: Operand) -> tuple[Operand, ...]:
    """Return the other operands; refuse one that is the first again."""
    if isinstance(first, Path) and first in others:
        raise ExpressionError(
            "The first operand must be distinct from the remaining operands for this operator or "
            f"function; operator: {operator}, first operand: {first}"
        )
    return others
