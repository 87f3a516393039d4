"""The grammar of condition expressions: text to tokens to a tree, names resolved on the way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .reserved import RESERVED_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>[0-9]+)|(?P<sign><>|<=|>=|[=<>()\[\],.+-])|(?P<end>\Z))"
)
MAX_BYTES: Final = 4096  # of the text of an expression
MAX_OPERATORS: Final = 300  # operators and functions of an expression
MAX_OPTIONS: Final = 100  # operands of an IN
MAX_PARTS: Final = 32  # names and indexes of a path
MAX_INDEX: Final = 2**31 - 1
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


def tokens_of(text: str) -> list[Token]:
    """The tokens of an expression; one that is empty, or longer than 4 KB, is refused."""
    if not text.strip():
        raise ExpressionError("The expression can not be empty;")
    size = len(text.encode())
    if size > MAX_BYTES:
        raise ExpressionError(
            f"Expression size has exceeded the maximum allowed size; expression size: {size}"
        )
    tokens = tokenize(text)
    _refuse_redundant(tokens)
    return tokens


def _refuse_redundant(tokens: list[Token]) -> None:
    """Refuse parentheses directly around parentheses."""
    # a pair is redundant if it encloses nothing but the pair that closed directly before it
    opened, inner = list[int](), (0, 0)
    for place, token in enumerate(tokens):
        if token.text == "(":
            opened.append(place)
        elif token.text == ")" and opened:
            start = opened.pop()
            if inner == (start + 1, place - 1):
                raise ExpressionError("The expression has redundant parentheses;")
            inner = start, place


@dataclass(slots=True)
class _Group:
    """Conditions between parentheses, and the NOTs before them: parts of AND, in parts of OR."""

    negations: int = 0
    alternatives: list[list[Condition]] = field(default_factory=lambda: [[]])

    def add(self, item: Condition, negations: int) -> None:
        for _ in range(negations):
            item = Not(item)
        self.alternatives[-1].append(item)

    def tree(self) -> Condition:
        return _joined("OR", [_joined("AND", parts) for parts in self.alternatives])


def _joined(word: str, items: list[Condition]) -> Condition:
    return items[0] if len(items) == 1 else Junction(word, tuple(items))


@dataclass(slots=True)
class Parser:
    """A parser over tokens; collects the placeholders that it met, and counts operators."""

    tokens: list[Token]
    names: Mapping[str, str]
    used_names: set[str] = field(default_factory=set)
    used_values: set[str] = field(default_factory=set)
    roots: set[str] = field(default_factory=set)
    typed: list[tuple[str, str, str]] = field(default_factory=list)
    """Operator, type letter and placeholder of values that take one type only."""
    position: int = 0
    operators: int = 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.position]

    def take(self) -> Token:
        """Read one token."""
        token = self.tokens[self.position]
        self.position += 1
        return token

    def take_operator(self) -> Token:
        """Read an operator or the name of a function; refuse one too many."""
        self.operators += 1
        if self.operators > MAX_OPERATORS:
            raise ExpressionError("The expression contains too many operators; operator count: 301")
        return self.take()

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
        """Refuse remaining tokens."""
        if self.token.kind != "end":
            raise self.syntax_error()

    def syntax_error(self) -> ExpressionError:
        """The refusal of the next token."""
        around = self.tokens[max(0, self.position - 1) : self.position + 2]
        near = " ".join(token.text for token in around).strip()
        token = self.token.text if self.token.kind != "end" else "<EOF>"
        return ExpressionError(f'Syntax error; token: "{token}", near: "{near}"')

    def condition(self) -> Condition:
        """A whole condition: NOT binds strongest, OR weakest; open parentheses are a list."""
        groups = [_Group()]
        while True:
            negations = 0
            while self.at_word("NOT"):
                self.take_operator()
                negations += 1

            # a list of groups, no recursion: a text of 4 KB may open 4,000 parentheses
            if self.accept("("):
                groups.append(_Group(negations))
                continue

            groups[-1].add(self._predicate(), negations)
            while not self._goes_on(groups[-1]):
                if len(groups) == 1:
                    return groups[0].tree()
                self.expect(")")
                closed = groups.pop()
                # the NOTs stand before the parenthesis, so they count for the whole group
                groups[-1].add(closed.tree(), closed.negations)

    def _goes_on(self, group: _Group) -> bool:
        """Read an AND or OR that goes on with a group; return whether there is one."""
        if self.at_word("OR"):
            group.alternatives.append([])
        elif not self.at_word("AND"):
            return False
        self.take_operator()
        return True

    def _predicate(self) -> Condition:
        # the end token always follows a word, so there is a next token
        if self.token.kind == "word" and self.tokens[self.position + 1].text == "(":
            name = self.token.text
            # `size` is an operand, and no condition
            if name != "size":
                return self._call(name)

        left = self.operand()
        if self.at_word("BETWEEN"):
            self.take_operator()
            low = self.operand()
            if not self.at_word("AND"):
                raise self.syntax_error()
            self.take()
            # the AND of a BETWEEN is no operator of its own: only BETWEEN was counted
            return Between(left, *_distinct("BETWEEN", left, low, self.operand()))

        if self.at_word("IN"):
            self.take_operator()
            self.expect("(")
            options = self._operands()
            if len(options) > MAX_OPTIONS:
                raise ExpressionError("The IN operator is provided with too many operands")
            return In(left, _distinct("IN", left, *options))

        if self.token.kind == "sign" and self.token.text in COMPARATORS:
            sign = self.take_operator().text
            return Compare(sign, left, *_distinct(sign, left, self.operand()))

        raise self.syntax_error()

    def _call(self, name: str) -> Call:
        if name not in FUNCTIONS:
            raise ExpressionError(f"Invalid function name; function: {name}")

        self.take_operator()
        self.take()
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
            self.take_operator()
            self.take()
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
                index = int(self.take().text)
                if index > MAX_INDEX:
                    raise ExpressionError(f"List index is not within the allowable range; {index}")
                parts.append(index)
                self.expect("]")
            elif len(parts) > MAX_PARTS:
                raise ExpressionError("The document path has too many nesting levels")
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
