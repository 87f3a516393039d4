"""Condition expressions, compiled to closures; key conditions, to the range that they read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from .grammar import (
    Between,
    Call,
    Compare,
    Condition,
    ExpressionError,
    In,
    Junction,
    Not,
    Operand,
    Parser,
    Path,
    Size,
    ValueRef,
    tokens_of,
)
from .paths import Names, resolve
from .values import Item, Value, kind_of, same, scalar

Values = Mapping[str, Value]
Test = Callable[[Item, Values], bool]
Read = Callable[[Item, Values], Value | None]

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERED: Final = frozenset("SNB")
_TYPES: Final = frozenset({"S", "N", "B", "SS", "NS", "BS", "M", "L", "BOOL", "NULL"})
_CACHE: Final = 4096


@dataclass(frozen=True, slots=True)
class CompiledCondition:
    """A condition ready to run; an absent item is an empty one."""

    test: Test
    names: frozenset[str]
    values: frozenset[str]
    tree: Condition
    checks: bool  # whether `check_operands` has anything to look at
    roots: frozenset[str]  # the attributes that it reads


@lru_cache(maxsize=_CACHE)
def compile_condition(text: str, names: Names) -> CompiledCondition:
    """Compile a condition or filter expression; ExpressionError where it is refused."""
    parser = Parser(tokens_of(text), dict(names))
    tree = parser.condition()
    parser.end()
    names_used, values_used = frozenset(parser.used_names), frozenset(parser.used_values)
    return CompiledCondition(
        compile_test(tree), names_used, values_used, tree, _checks(tree), frozenset(parser.roots)
    )


def _checks(tree: Condition) -> bool:
    if isinstance(tree, Junction):
        return any(map(_checks, tree.items))
    if isinstance(tree, Not):
        return _checks(tree.item)

    # only an order, bounds or a second argument can have a type that is refused for every item
    ordering = isinstance(tree, Compare) and tree.sign in _ORDER
    return (
        ordering
        or isinstance(tree, Between)
        or (isinstance(tree, Call) and len(tree.arguments) > 1)
    )


def compile_read(operand: Operand) -> Read:
    """A closure that reads an operand; None where the path leads nowhere."""
    if isinstance(operand, ValueRef):
        ref = operand.ref
        return lambda _item, values: values[ref]
    if isinstance(operand, Size):
        inner = operand.path
        return lambda item, _values: _size(resolve(item, inner))
    if len(operand.parts) == 1:
        name = str(operand.parts[0])
        return lambda item, _values: item.get(name)
    return lambda item, _values: resolve(item, operand)


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    kind, raw = next(iter(value.items()))
    # a number has no size: the operand is then like an absent attribute
    if kind in {"N", "BOOL", "NULL"}:
        return None
    return {"N": str(len(raw.encode()) if kind == "S" else len(raw))}


def compile_test(tree: Condition) -> Test:
    """A closure that evaluates a condition tree."""
    if isinstance(tree, Junction):
        return _compile_junction(tree)
    if isinstance(tree, Not):
        test = compile_test(tree.item)
        return lambda item, values: not test(item, values)
    if isinstance(tree, Compare):
        return _compile_comparison(tree)
    if isinstance(tree, Between):
        return _compile_between(tree)
    return _compile_in(tree) if isinstance(tree, In) else _compile_call(tree)


def _compile_in(tree: In) -> Test:
    read = compile_read(tree.operand)
    options = [compile_read(option) for option in tree.options]
    return lambda item, values: any(
        _equal(read(item, values), option(item, values)) for option in options
    )


def _compile_junction(tree: Junction) -> Test:
    tests = [compile_test(item) for item in tree.items]
    if tree.word == "AND":
        return lambda item, values: all(test(item, values) for test in tests)
    return lambda item, values: any(test(item, values) for test in tests)


def _equal(left: Value | None, right: Value | None) -> bool:
    # an absent attribute equals nothing, so `<>` holds for it: `NOT a = b` is the same as `a <> b`
    return left is not None and right is not None and same(left, right)


def _compile_comparison(tree: Compare) -> Test:
    left, right = compile_read(tree.left), compile_read(tree.right)
    if tree.sign == "=":
        return lambda item, values: _equal(left(item, values), right(item, values))
    if tree.sign == "<>":
        return lambda item, values: not _equal(left(item, values), right(item, values))
    order = _ORDER[tree.sign]
    return lambda item, values: _ordered(order, left(item, values), right(item, values))


def _ordered(order: Callable[[Any, Any], bool], left: Value | None, right: Value | None) -> bool:
    if left is None or right is None:
        return False
    kind = kind_of(left)
    # values of different types have no order: the condition fails, and is no error
    return kind in _ORDERED and kind in right and order(scalar(left), scalar(right))


def _compile_between(tree: Between) -> Test:
    read, low, high = compile_read(tree.operand), compile_read(tree.low), compile_read(tree.high)

    def test(item: Item, values: Values) -> bool:
        # bounds that are attributes may stand in the wrong order: then it never holds
        value = read(item, values)
        return _ordered(operator.le, low(item, values), value) and _ordered(
            operator.le, value, high(item, values)
        )

    return test


def _compile_call(tree: Call) -> Test:
    read = compile_read(tree.arguments[0])
    if tree.function == "attribute_exists":
        return lambda item, values: read(item, values) is not None
    if tree.function == "attribute_not_exists":
        return lambda item, values: read(item, values) is None
    argument = compile_read(tree.arguments[1])
    verdict = {"attribute_type": _has_type, "begins_with": _begins, "contains": _contains}[
        tree.function
    ]

    def test(item: Item, values: Values) -> bool:
        value, other = read(item, values), argument(item, values)
        return value is not None and other is not None and verdict(value, other)

    return test


def _has_type(value: Value, name: Value) -> bool:
    return name.get("S") in value


def _begins(value: Value, prefix: Value) -> bool:
    kind = kind_of(value)
    return kind in {"S", "B"} and kind in prefix and value[kind].startswith(prefix[kind])


def _contains(value: Value, sought: Value) -> bool:
    kind, other = kind_of(value), kind_of(sought)
    if kind in {"S", "B"}:
        # of text, a part; of a set or list, an element
        return kind == other and sought[kind] in value[kind]
    if kind in {"SS", "NS", "BS"}:
        # `SS` has elements of type `S`, and so on
        return kind[0] == other and sought[other] in value[kind]
    return kind == "L" and any(same(element, sought) for element in value["L"])


def check_operands(tree: Condition, values: Values) -> None:
    """Refuse values that the service refuses for every item: types and bounds."""
    if isinstance(tree, Junction):
        for item in tree.items:
            check_operands(item, values)
    elif isinstance(tree, Not):
        check_operands(tree.item, values)
    elif isinstance(tree, Compare):
        _check_ordered(tree.sign, (tree.left, tree.right), values)
    elif isinstance(tree, Between):
        _check_ordered("BETWEEN", (tree.operand, tree.low, tree.high), values)
        _check_bounds(tree, values)
    elif isinstance(tree, Call):
        _check_call(tree, values)


def _check_ordered(sign: str, operands: tuple[Operand, ...], values: Values) -> None:
    """Refuse values that have no order where one is asked for."""
    # attributes of the item are not looked at: of a wrong type they only fail the condition
    for operand in operands if sign not in {"=", "<>"} else ():
        if isinstance(operand, ValueRef) and kind_of(values[operand.ref]) not in _ORDERED:
            raise _wrong_type(sign, kind_of(values[operand.ref]))


def _check_bounds(tree: Between, values: Values) -> None:
    # a bound that is a path is known only with the item
    if not (isinstance(tree.low, ValueRef) and isinstance(tree.high, ValueRef)):
        return
    low, high = values[tree.low.ref], values[tree.high.ref]
    if kind_of(low) != kind_of(high):
        raise ExpressionError(
            "The BETWEEN operator requires same data type for lower and upper bounds"
        )
    if not _ordered(operator.le, low, high):
        raise ExpressionError(
            "The BETWEEN operator requires upper bound to be greater than or equal to lower bound"
        )


def _check_call(tree: Call, values: Values) -> None:
    # a size is a number in every item, and a number begins with nothing
    if tree.function == "begins_with" and isinstance(tree.arguments[1], Size):
        raise _wrong_type(tree.function, "N")
    if len(tree.arguments) == 1 or not isinstance(tree.arguments[1], ValueRef):
        return

    value = values[tree.arguments[1].ref]
    if tree.function == "begins_with" and kind_of(value) not in {"S", "B"}:
        raise _wrong_type(tree.function, kind_of(value))
    if tree.function == "attribute_type":
        if kind_of(value) != "S":
            raise _wrong_type(tree.function, kind_of(value))
        if value["S"] not in _TYPES:
            raise ExpressionError(
                f"Invalid attribute type name found; type: {value['S']}, valid types: "
                "{B,NULL,SS,BOOL,L,BS,N,NS,S,M}"
            )


def _wrong_type(function: str, kind: str) -> ExpressionError:
    return ExpressionError(
        "Incorrect operand type for operator or function; operator or function: "
        f"{function}, operand type: {kind}"
    )


@dataclass(frozen=True, slots=True)
class KeyTerm:
    """One comparison of a key attribute: ``sign`` is a comparator, BETWEEN or begins_with."""

    name: str
    sign: str
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """The one or two terms of a key condition."""

    terms: tuple[KeyTerm, ...]
    names: frozenset[str]
    values: frozenset[str]

    def split(self, hash_name: str, range_name: str | None) -> tuple[KeyTerm, KeyTerm | None]:
        """The terms of the hash and of the range key; ExpressionError where they do not fit."""
        of = {term.name: term for term in self.terms}
        if len(of) < len(self.terms):
            raise ExpressionError("KeyConditionExpressions must only contain one condition per key")

        # by name, in either order: the service takes the sort key first, too
        hash_term = of.pop(hash_name, None)
        range_term = of.pop(range_name, None) if range_name is not None else None
        if hash_term is None:
            raise KeyMissedError(f"Query condition missed key schema element: {hash_name}")
        if of:
            raise KeyMissedError(
                "Query condition missed key schema element: " + (range_name or next(iter(of)))
                if range_name is not None and range_term is None
                else "Query key condition not supported"
            )
        # a partition is found by a hash, which knows equality alone
        if hash_term.sign != "=":
            raise KeyMissedError("Query key condition not supported")

        return hash_term, range_term


class KeyMissedError(ExpressionError):
    """A key condition that reads, but does not fit the keys."""


@lru_cache(maxsize=4096)
def compile_key_condition(text: str, names: Names) -> KeyCondition:
    """Compile a KeyConditionExpression; ExpressionError where it is refused."""
    parser = Parser(tokens_of(text), dict(names))
    tree = parser.condition()
    parser.end()
    terms = tuple(_term(item) for item in conjuncts(tree))
    if len(terms) > 2:
        raise KeyMissedError("Conditions can be of length 1 or 2 only")
    return KeyCondition(terms, frozenset(parser.used_names), frozenset(parser.used_values))


def conjuncts(tree: Condition) -> tuple[Condition, ...]:
    """The conditions that a tree joins by AND, nested ones flattened."""
    if isinstance(tree, Junction) and tree.word == "AND":
        return tuple(part for item in tree.items for part in conjuncts(item))
    return (tree,)


def _term(tree: Condition) -> KeyTerm:
    if isinstance(tree, Compare):
        if tree.sign == "<>":
            raise ExpressionError("Unsupported operator in KeyConditionExpression: <>")
        return KeyTerm(_name(tree.left), tree.sign, _refs(tree.right))
    if isinstance(tree, Between):
        return KeyTerm(_name(tree.operand), "BETWEEN", _refs(tree.low, tree.high))
    if isinstance(tree, Call) and tree.function == "begins_with":
        return KeyTerm(_name(tree.arguments[0]), "begins_with", _refs(tree.arguments[1]))
    raise ExpressionError(f"Invalid operator used in KeyConditionExpression: {_operator(tree)}")


def _operator(tree: Condition) -> str:
    if isinstance(tree, Call):
        return tree.function
    return tree.word if isinstance(tree, Junction) else type(tree).__name__.upper()


def _name(operand: Operand) -> str:
    if isinstance(operand, Path) and len(operand.parts) == 1:
        return str(operand.parts[0])
    raise ExpressionError("KeyConditionExpressions cannot have conditions on nested attributes")


def _refs(*operands: Operand) -> tuple[str, ...]:
    if not all(isinstance(operand, ValueRef) for operand in operands):
        raise ExpressionError("KeyConditionExpressions must compare a key attribute with a value")
    return tuple(operand.ref for operand in operands if isinstance(operand, ValueRef))
