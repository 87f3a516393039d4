"""Key conditions: which partition a query reads, and which range of its sort keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .grammar import (
    Between,
    Call,
    Compare,
    Condition,
    ExpressionError,
    Junction,
    Operand,
    Parser,
    Path,
    ValueRef,
    tokens_of,
)

if TYPE_CHECKING:
    from .paths import Names


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
