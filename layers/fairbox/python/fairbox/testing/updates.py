"""Update expressions, parsed once: SET, REMOVE, ADD and DELETE on a copy of the item."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from .expressions import Read, Values, compile_read
from .grammar import ExpressionError, Parser, Path, Token, tokens_of
from .paths import Names, projection, refuse_overlaps, resolve
from .refusals import invalid
from .values import Item, Value, copy_value, kind_of, number, number_text, take_value

if TYPE_CHECKING:
    from collections.abc import Callable

_WIDE: Final = Context(prec=300)  # more than any two numbers need: a sum is exact or refused
_CLAUSES: Final = ("SET", "REMOVE", "ADD", "DELETE")
_WRONG_TYPE: Final = "An operand in the update expression has an incorrect data type"
_NO_ATTRIBUTE: Final = (
    "The provided expression refers to an attribute that does not exist in the item"
)
_BAD_PATH: Final = "The document path provided in the update expression is invalid for update"
_SETS: Final = frozenset({"SS", "NS", "BS"})
Change = tuple[Path, Read]


@dataclass(slots=True)
class Clauses:
    """The four clauses of an update, in the order written."""

    sets: list[Change] = field(default_factory=list)
    removes: list[Path] = field(default_factory=list)
    adds: list[tuple[Path, str]] = field(default_factory=list)
    deletes: list[tuple[Path, str]] = field(default_factory=list)

    def paths(self) -> list[Path]:
        """Every path that the update writes."""
        return [
            *(path for path, _ in self.sets),
            *self.removes,
            *(path for path, _ in self.adds),
            *(path for path, _ in self.deletes),
        ]


@dataclass(frozen=True, slots=True)
class Update:
    """A compiled update."""

    clauses: Clauses
    paths: tuple[Path, ...]
    roots: frozenset[str]
    names: frozenset[str]
    values: frozenset[str]
    typed: tuple[tuple[str, str, str], ...]

    def check_operands(self, values: Values) -> None:
        """Refuse operands that the service refuses for every item."""
        for operator, wanted, ref in self.typed:
            if wanted not in values[ref]:
                raise ExpressionError(
                    "Incorrect operand type for operator or function; operator or function: "
                    f"{operator}, operand type: {kind_of(values[ref])}"
                )

        for word, changes, kinds in (
            ("ADD", self.clauses.adds, _SETS | {"N"}),
            ("DELETE", self.clauses.deletes, _SETS),
        ):
            for _, ref in changes:
                kind = kind_of(values[ref])
                if kind not in kinds:
                    raise ExpressionError(
                        f"Incorrect operand type for operator or function; operator: {word}, "
                        f"operand type: {_TYPE_NAMES.get(kind, kind)}, "
                        f"typeSet: ALLOWED_FOR_{word}_OPERAND"
                    )

    def apply(self, item: Item, values: Values) -> Item:
        """The item after the update; operands are read from the item as it was."""
        clauses = self.clauses
        new = dict(item)
        for root in self.roots:
            if root in new and ("M" in new[root] or "L" in new[root]):
                new[root] = copy_value(new[root])  # nested writes must not reach the old item

        settings = [(path, read(item, values)) for path, read in clauses.sets]
        for path, value in settings:
            if value is None:
                raise invalid(_NO_ATTRIBUTE)
            _put(new, path, copy_value(value))
        for path, ref in clauses.adds:
            _put(new, path, _added(resolve(item, path), values[ref]))
        for path, ref in clauses.deletes:
            _delete_elements(new, path, values[ref])
        # from the last index to the first: a removal moves what lies behind it
        for path in sorted(clauses.removes, key=_index_of, reverse=True):
            _remove(new, path)

        return new

    def touched(self, item: Item) -> Item:
        """A copy of the attributes of `item` that the paths of this update name."""
        return projection(self.paths, self.names).keep(item)


@lru_cache(maxsize=4096)
def compile_update(text: str, names: Names) -> Update:
    """Compile an update expression; ExpressionError where it is refused."""
    parser = Parser(tokens_of(text), dict(names))
    clauses = Clauses()
    seen: set[str] = set()

    while parser.token.kind != "end":
        word = parser.take().text.upper()
        if word not in _CLAUSES:
            parser.position -= 1
            raise parser.syntax_error()
        if word in seen:
            raise ExpressionError(
                f'The "{word}" section can only be used once in an update expression;'
            )
        seen.add(word)
        parse_clause(parser, word, clauses)
    return finish_update(parser, clauses)


def finish_update(parser: Parser, clauses: Clauses) -> Update:
    """Check the paths of parsed clauses and make the update of them."""
    paths = clauses.paths()
    refuse_overlaps(paths)
    return Update(
        clauses,
        tuple(paths),
        frozenset(str(path.parts[0]) for path in paths),
        frozenset(parser.used_names),
        frozenset(parser.used_values),
        tuple(parser.typed),
    )


def parse_clause(parser: Parser, word: str, clauses: Clauses) -> None:
    """Read the comma-separated actions of one clause."""
    while True:
        path = parser.path()
        if word == "SET":
            parser.expect("=")
            clauses.sets.append((path, _set_value(parser)))
        elif word == "REMOVE":
            clauses.removes.append(path)
        else:
            if parser.token.kind != "value":
                raise parser.syntax_error()
            target = clauses.adds if word == "ADD" else clauses.deletes
            target.append((path, parser.value().ref))

        if not parser.accept(","):
            return


def _set_value(parser: Parser) -> Read:
    """Read an operand or one sum; each operand and the whole may stand in parentheses."""
    first = parser.token
    whole = parser.accept("(")
    token = parser.token
    operand = _set_operand(parser, inner=False)
    value = _sum_with(parser, token, operand)
    if not whole:
        return value
    parser.expect(")")
    # parentheses around one operand may be followed by a sum; around a sum, by nothing more
    return _sum_with(parser, first, value) if value is operand else value


def _sum_with(parser: Parser, token: Token, left: Read) -> Read:
    for sign in ("+", "-"):
        if parser.token == Token("sign", sign):
            parser.take_operator()
            _note(parser, sign, "N", token, parser.token)
            return _arithmetic(left, _set_operand(parser), -1 if sign == "-" else 1)
    return left


def _note(parser: Parser, operator: str, kind: str, *operands: Token) -> None:
    """Note the type that an operator takes of operands that are values."""
    parser.typed += [(operator, kind, token.text) for token in operands if token.kind == "value"]


def _set_operand(parser: Parser, *, inner: bool = True) -> Read:
    wrapped = parser.accept("(")
    token = parser.token
    if token.kind == "word" and parser.tokens[parser.position + 1] == Token("sign", "("):
        parser.take_operator()
        parser.take()
        function = _FUNCTIONS.get(token.text)
        if function is None or (inner and function is _list_append):
            raise ExpressionError(f"Invalid function name, or place; function: {token.text}")
        read = function(parser)
    else:
        operand = parser.operand()
        read = compile_read(operand)
        read = _strict(read) if isinstance(operand, Path) else read

    if wrapped:
        parser.expect(")")
    return read


def _strict(read: Read) -> Read:
    def strict(item: Item, values: Values) -> Value:
        value = read(item, values)
        if value is None:
            raise invalid(_NO_ATTRIBUTE)
        return value

    return strict


def _if_not_exists(parser: Parser) -> Read:
    path = parser.path()
    parser.expect(",")
    otherwise = _set_operand(parser)
    parser.expect(")")

    def read(item: Item, values: Values) -> Value | None:
        value = resolve(item, path)
        return otherwise(item, values) if value is None else value

    return read


def _list_append(parser: Parser) -> Read:
    token = parser.token
    first = _set_operand(parser)
    parser.expect(",")
    _note(parser, "list_append", "L", token, parser.token)
    second = _set_operand(parser)
    parser.expect(")")

    def read(item: Item, values: Values) -> Value:
        one, other = first(item, values), second(item, values)
        if one is None or other is None or "L" not in one or "L" not in other:
            raise invalid(_WRONG_TYPE)
        return {"L": one["L"] + other["L"]}

    return read


_FUNCTIONS: Final[dict[str, Callable[[Parser], Read]]] = {
    "if_not_exists": _if_not_exists,
    "list_append": _list_append,
}


def _arithmetic(left: Read, right: Read, sign: int) -> Read:
    def read(item: Item, values: Values) -> Value:
        one, other = left(item, values), right(item, values)
        if one is None or other is None or "N" not in one or "N" not in other:
            raise invalid(_WRONG_TYPE)
        return {"N": number_text(_sum(number(one["N"]), number(other["N"]), sign))}

    return read


def _sum(one: int | Decimal, other: int | Decimal, sign: int = 1) -> int | Decimal:
    if isinstance(one, int) and isinstance(other, int):
        return one + sign * other
    # the operators of Decimal would round to 28 digits, and DynamoDB has 38
    return _WIDE.fma(sign, other, one)


def _added(old: Value | None, operand: Value) -> Value:
    kind = kind_of(operand)
    if old is None:
        # ADD to an absent attribute makes it: a number counts from 0
        return copy_value(operand)
    if kind not in old:
        raise invalid(_WRONG_TYPE)
    if kind == "N":
        return {"N": number_text(_sum(number(old["N"]), number(operand["N"])))}
    return {kind: list(dict.fromkeys([*old[kind], *operand[kind]]))}


def _delete_elements(new: Item, path: Path, operand: Value) -> None:
    kind = kind_of(operand)
    old = resolve(new, path)
    if old is None:
        # an absent set is no error, but the map that would hold it must be there
        if len(path.parts) > 1:
            _holder(new, path)
        return
    if kind not in old:
        raise invalid(_WRONG_TYPE)

    left = [element for element in old[kind] if element not in operand[kind]]
    # a set is never empty: with its last element the attribute goes
    if left:
        _put(new, path, {kind: left})
    else:
        _remove(new, path)


_TYPE_NAMES: Final = {
    "S": "STRING", "B": "BINARY", "N": "NUMBER", "M": "MAP", "L": "LIST", "BOOL": "BOOLEAN",
    "NULL": "NULL",
}  # fmt: skip


def _holder(item: Item, path: Path) -> Any:
    """The map or list that holds the last part of a nested path."""
    holder = resolve(item, Path(path.parts[:-1]))
    kind = "L" if isinstance(path.parts[-1], int) else "M"
    if holder is None or kind not in holder:
        raise invalid(_BAD_PATH)
    return holder[kind]


def _put(item: Item, path: Path, value: Value) -> None:
    last = path.parts[-1]
    if len(path.parts) == 1:
        item[str(last)] = value
        return
    holder = _holder(item, path)
    # a value that is allowed by itself may lie too deep at its place
    value = take_value(value, len(path.parts) - 1)
    # an index behind the end appends, however far; lists have no gaps
    if isinstance(last, int) and last >= len(holder):
        holder.append(value)
    else:
        holder[last] = value


def _remove(item: Item, path: Path) -> None:
    last = path.parts[-1]
    if len(path.parts) == 1:
        item.pop(str(last), None)
        return
    holder = _holder(item, path)
    if isinstance(last, int):
        # a slice: an index behind the end removes nothing, and is no error
        del holder[last : last + 1]
    else:
        holder.pop(last, None)


def _index_of(path: Path) -> int:
    last = path.parts[-1]
    return last if isinstance(last, int) else -1
