"""BatchExecuteStatement: PartiQL writes of single items, each for itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from .expressions import CompiledCondition, compile_test, conjuncts
from .grammar import (
    Call,
    Compare,
    Condition,
    ExpressionError,
    Junction,
    Parser,
    Path,
    Token,
    ValueRef,
    tokenize,
)
from .memory_tables import Table, base_units
from .operation_requests import Bill, Request, Response
from .refusals import Refusal, invalid
from .units import item_size, write_units
from .updates import Clauses, Update, finish_update, parse_clause
from .values import Value, take_value
from .writes import Write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .memory_tables import Engine

MAX_STATEMENTS: Final = 25
MAX_CHARACTERS: Final = 8192  # of a statement
_TOKEN: Final = re.compile(
    r'\s*(?:"(?P<quoted>[^"]+)"|(?P<value>\?)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]+)'
    r"|(?P<sign><>|<=|>=|[=<>()\[\],.+-])|(?P<end>\Z))"
)
_INSERT: Final = re.compile(r'INSERT\s+INTO\s+"([^"]+)"\s+VALUE\s*\{(.*)\}\s*', re.IGNORECASE)
_FIELD: Final = re.compile(r"\s*'([^']+)'\s*:\s*\?\s*")
_CODES: Final = {
    "ConditionalCheckFailedException": "ConditionalCheckFailed",
    "ValidationException": "ValidationError",
    "ResourceNotFoundException": "ResourceNotFound",
}


class _Parser(Parser):
    """The condition grammar with PartiQL's ``IS [NOT] MISSING`` and positional values."""

    def _predicate(self) -> Condition:
        position = self.position
        if self.token.kind in {"word", "quoted"}:
            # a name before a parenthesis is a function; any other may be a path before IS
            path = self.path() if self.tokens[position + 1].text != "(" else None
            if path is not None and self.at_word("IS"):
                self.take()
                return self._missing(path)
            # no IS: the usual grammar reads the same tokens again
            self.position = position
        return super()._predicate()

    def _missing(self, path: Path) -> Condition:
        # `IS NOT MISSING` is `attribute_exists`
        positive = self.at_word("NOT")
        if positive:
            self.take()
        if not self.at_word("MISSING"):
            raise self.syntax_error()
        self.take()
        return Call("attribute_exists" if positive else "attribute_not_exists", (path,))


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement: ``update`` is None for a DELETE; values are ``?0``, ``?1``...

    ``inserts`` are the names of the attributes of an INSERT, in the order of its values.
    """

    table: str
    update: Update | None
    terms: tuple[Condition, ...]
    count: int
    inserts: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def parse_statement(text: str) -> Statement:
    """Parse an UPDATE, DELETE or INSERT; ExpressionError where it is none."""
    if text.lstrip()[:6].upper() == "INSERT":
        return _parse_insert(text)

    parser = _Parser(_numbered(tokenize(text, _TOKEN)), {})
    word = parser.take().text.upper()
    update: Update | None = None

    if word == "DELETE":
        _word(parser, "FROM")
        table = parser.take().text
    elif word == "UPDATE":
        table = parser.take().text
        clauses = Clauses()
        # PartiQL has no ADD and DELETE clauses
        while parser.at_word("SET", "REMOVE"):
            parse_clause(parser, parser.take().text.upper(), clauses)
        update = finish_update(parser, clauses)
    else:
        raise ExpressionError("Statement wasn't well formed, can't be processed: Unexpected token")

    _word(parser, "WHERE")
    tree = parser.condition()
    parser.end()
    return Statement(table, update, conjuncts(tree), len(parser.used_values))


def _parse_insert(text: str) -> Statement:
    """Parse an INSERT of values in order: no literals, no nested attributes."""
    found = _INSERT.fullmatch(text.strip())
    fields = [_FIELD.fullmatch(part) for part in found[2].split(",")] if found else []
    if found is None or not all(fields):
        raise ExpressionError("Unsupported format in item expression")
    names = tuple(field[1] for field in fields if field is not None)
    return Statement(found[1], None, (), len(names), names)


def statement_units(entry: Mapping[str, Any]) -> tuple[str, int]:
    """Return the table of a statement and the least write units of it, by its request alone.

    Of an insert they are exact where it was carried out. An update or delete costs one for each
    KB of its item, which the request does not show: one unit.
    """
    parsed = parse_statement(entry["Statement"])
    item = dict(zip(parsed.inserts, entry.get("Parameters", ()), strict=False))
    return parsed.table, write_units(item_size(item))


def _numbered(tokens: list[Token]) -> list[Token]:
    """Question marks numbered from 0: ``?0``, ``?1``..."""
    numbered: list[Token] = []
    count = 0
    for token in tokens:
        if token.kind == "value":
            numbered.append(Token("value", f"?{count}"))
            count += 1
        else:
            numbered.append(token)
    return numbered


def _word(parser: Parser, word: str) -> None:
    if not parser.at_word(word):
        raise parser.syntax_error()
    parser.take()


def batch_execute_statement(engine: Engine, request: Request) -> Response:
    """BatchExecuteStatement: a response for each statement, with an ``Error`` if it failed."""
    statements = request["Statements"]
    if not 1 <= len(statements) <= MAX_STATEMENTS:
        raise invalid(
            "1 validation error detected: Value at 'statements' failed to satisfy constraint: "
            f"Member must have length less than or equal to {MAX_STATEMENTS}"
        )
    if any(len(entry["Statement"]) > MAX_CHARACTERS for entry in statements):
        raise invalid(f"Member must have length less than or equal to {MAX_CHARACTERS}")

    bill = Bill(request.get("ReturnConsumedCapacity"))
    # a malformed value refuses the call, not its statement
    parameters = [[take_value(value) for value in s.get("Parameters", [])] for s in statements]
    parsed = [_prepared(engine, *each) for each in zip(statements, parameters, strict=True)]
    targets = [(write.table.name, write.key) for write in parsed if isinstance(write, Write)]
    # statements of a batch run in no order, so two of one item are refused
    if len(set(targets)) != len(targets):
        raise invalid("Provided list of item keys contains duplicates")

    responses = [
        _run(engine, write, bill) if isinstance(write, Write) else write for write in parsed
    ]
    return bill.added({"Responses": responses})


def _failed(refusal: Refusal) -> Response:
    code = _CODES.get(refusal.code, refusal.code)
    return {"Error": {"Code": code, "Message": refusal.message, **refusal.fields}}


def _prepared(engine: Engine, entry: dict[str, Any], values: list[Value]) -> Write | Response:
    """The write of a statement, or the error that answers it."""
    try:
        statement = parse_statement(entry["Statement"])
        if len(values) != statement.count:
            raise invalid("Number of parameters in request and statement don't match.")
        table = engine.table(statement.table)
        if statement.inserts:
            given = zip(statement.inserts, entry["Parameters"], strict=True)
            return Write(table, "Put", {"Item": dict(given)})
        by_ref = {f"?{place}": value for place, value in enumerate(values)}
        write = _write(table, statement, by_ref)
    except ExpressionError as error:
        return _failed(invalid(f"Statement wasn't well formed, can't be processed: {error}"))
    except Refusal as refusal:
        return _failed(refusal)

    write.shows_old = entry.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    return write


def _write(table: Table, statement: Statement, values: dict[str, Value]) -> Write:
    key: dict[str, Any] = {}
    rest: list[Condition] = []
    # equalities on the key's attributes name the item; all other terms are its condition
    for term in statement.terms:
        found = _key_term(term, table)
        # a second equality on the same attribute is a condition like any other
        if found is not None and found[0] not in key:
            key[found[0]] = values[found[1]]
        else:
            rest.append(term)
    # a write by part of a key would be many writes: the service refuses it
    if key.keys() != set(table.keys.names):
        raise invalid("Where clause does not contain a mandatory equality on all key attributes")

    kind = "Delete" if statement.update is None else "Update"
    write = Write(table, kind, {"Key": key})
    write.update = statement.update
    write.values = values

    if statement.update is not None:
        if statement.update.roots & set(table.keys.names):
            raise invalid("Cannot update attributes that are part of the key")
        statement.update.check_operands(values)
        hash_name = table.keys.hash_name
        # unlike `UpdateItem`, a PartiQL update makes no item
        rest.insert(0, Call("attribute_exists", (Path((hash_name,)),)))

    if rest:
        tree = rest[0] if len(rest) == 1 else Junction("AND", tuple(rest))
        none: frozenset[str] = frozenset()
        test = compile_test(tree)
        write.condition = CompiledCondition(test, none, none, tree, checks=False, roots=none)

    return write


def _key_term(term: Condition, table: Table) -> tuple[str, str] | None:
    if not (isinstance(term, Compare) and term.sign == "="):
        return None
    if not (isinstance(term.left, Path) and isinstance(term.right, ValueRef)):
        return None
    name = term.left.parts[0]
    if len(term.left.parts) > 1 or name not in table.keys.names:
        return None
    return str(name), term.right.ref


def _run(engine: Engine, write: Write, bill: Bill) -> Response:
    old = write.table.store.get(write.key)
    if write.kind == "Delete" and old is None:
        bill.add(write.table.name, base_units(None, None))
        return {"TableName": write.table.name}  # deleting what is not there is no error here

    # an INSERT never replaces
    if write.kind == "Put" and old is not None:
        bill.add(write.table.name, base_units(old, None))
        duplicate = {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}
        return {"Error": duplicate, "TableName": write.table.name}

    # a refused statement is billed as a write of the item that refused it
    if not write.permits(old):
        bill.add(write.table.name, base_units(old, None))
        return {**_failed(write.refusal(old)), "TableName": write.table.name}

    try:
        new = write.outcome(old)
    except Refusal as refusal:
        return {**_failed(refusal), "TableName": write.table.name}

    indexes = engine.write(write.table, write.key, old, new)
    bill.add(write.table.name, base_units(old, new), indexes)
    return {"TableName": write.table.name}
