"""Expressions and values of the in-memory engine, against plain Python."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from fairbox.testing.expressions import compile_condition
from fairbox.testing.grammar import ExpressionError
from fairbox.testing.units import item_size, number_size, read_units, value_size, write_units
from fairbox.testing.updates import compile_update
from fairbox.testing.values import copy_item, normal_number, same, take_item
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.decimals(
    min_value=Decimal("-1e20"), max_value=Decimal("1e20"), places=6, allow_nan=False
)
SCALARS = st.one_of(
    st.text(max_size=8).map(lambda text: {"S": text}),
    NUMBERS.map(lambda number: {"N": str(number)}),
    st.binary(max_size=8).map(lambda raw: {"B": raw}),
    st.booleans().map(lambda flag: {"BOOL": flag}),
    st.just({"NULL": True}),
    st.sets(st.text(max_size=4), min_size=1).map(lambda texts: {"SS": list(texts)}),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: {"L": values}),
        st.dictionaries(st.text(max_size=4), inner, max_size=3).map(lambda items: {"M": items}),
    ),
    max_leaves=6,
)
ITEMS = st.dictionaries(st.text(min_size=1, max_size=6), VALUES, max_size=5)

ATOMS = {"a": True, "b": False, "c": True}
BOOLEANS = st.recursive(
    st.sampled_from(sorted(ATOMS)),
    lambda inner: st.one_of(
        inner.map(lambda one: f"NOT ({one})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} AND {two[1]})"),
        st.tuples(inner, inner, inner).map(lambda of: f"{of[0]} OR {of[1]} AND {of[2]}"),
    ),
    max_leaves=8,
)


def holds(text: str, item: dict[str, Any], values: dict[str, Any]) -> bool:
    return compile_condition(text, ()).test(take_item(item), take_item(values))


@given(BOOLEANS)
def test_junctions_bind_as_python_binds_them(text: str) -> None:
    expression = re.sub(r"\b[abc]\b", lambda name: f"attribute_exists({name[0]})", text)
    item = {name: {"S": "x"} for name, there in ATOMS.items() if there}
    python = text.replace("AND", "and").replace("OR", "or").replace("NOT", "not")
    assert holds(expression, item, {}) == eval(python, {}, dict(ATOMS))  # noqa: S307 - made above


@given(NUMBERS, NUMBERS)
def test_numbers_compare_and_add_as_decimals_do(one: Decimal, other: Decimal) -> None:
    item, values = {"n": {"N": str(one)}}, {":v": {"N": str(other)}}
    for sign, expected in {
        "<": one < other,
        "<=": one <= other,
        "=": one == other,
        "<>": one != other,
        ">=": one >= other,
        ">": one > other,
    }.items():
        assert holds(f"n {sign} :v", item, values) == expected
    update = compile_update("SET n = n - :v", ())
    result = update.apply(take_item(item), take_item(values))["n"]["N"]
    assert Decimal(result) == one - other


@given(st.text(max_size=5), st.text(max_size=5))
def test_texts_compare_as_their_utf8_bytes(one: str, other: str) -> None:
    values = {":v": {"S": other}}
    assert holds("s < :v", {"s": {"S": one}}, values) == (one.encode() < other.encode())


@given(ITEMS)
def test_a_taken_item_is_equal_however_often_it_is_taken_and_copied(item: dict[str, Any]) -> None:
    taken = take_item(item)
    assert take_item(taken) == taken == copy_item(taken)
    assert item_size(copy_item(taken)) == item_size(taken)


@given(NUMBERS)
def test_the_normal_form_of_a_number_is_one_and_the_same(number: Decimal) -> None:
    forms = {
        normal_number(str(number)),
        normal_number(f"{number:e}"),
        normal_number(normal_number(f"{number:f}00" if "." in f"{number:f}" else str(number))),
    }
    assert len(forms) == 1
    assert Decimal(forms.pop()) == number


@given(ITEMS, st.text(min_size=1, max_size=3), VALUES)
def test_an_update_changes_what_it_names_and_leaves_its_input_alone(
    item: dict[str, Any], name: str, value: Any
) -> None:
    taken = take_item(item)
    before = copy_item(taken)
    update = compile_update("SET #n = :v", (("#n", name),))
    after = update.apply(taken, take_item({":v": value}))
    assert taken == before
    assert same(after.pop(name), take_item({":v": value})[":v"])
    assert after == {key: kept for key, kept in before.items() if key != name}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": ""}, 0),
        ({"S": "ü"}, 2),
        ({"B": b"123"}, 3),
        ({"N": "0"}, 1),
        ({"N": "100"}, 2),
        ({"N": "-123.45"}, 5),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["ab", "c"]}, 3),
        ({"NS": ["1", "22"]}, 4),
        ({"BS": [b"1", b"22"]}, 3),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}, {"N": "1"}]}, 3 + 2 + 2 + 2),
        ({"M": {"k": {"S": "ab"}}}, 3 + 1 + 1 + 2),
    ],
)
def test_a_value_has_the_size_that_dynamodb_counts(value: Any, size: int) -> None:
    assert value_size(value) == size
    assert item_size({"näme": value}) == 5 + size


def test_units_round_up_and_are_never_nothing() -> None:
    assert [write_units(size) for size in (0, 1, 1024, 1025)] == [1, 1, 1, 2]
    assert [read_units(size) for size in (0, 4096, 4097)] == [0.5, 0.5, 1.0]
    assert [read_units(size, consistent=True) for size in (0, 4096, 4097)] == [1.0, 1.0, 2.0]
    assert number_size("1") == 2


@pytest.mark.parametrize("text", ["a = :v", "a.b[0] = :v", "attribute_exists(a)", "size(a) > :v"])
def test_a_compiled_condition_is_made_once(text: str) -> None:
    assert compile_condition(text, ()) is compile_condition(text, ())


@pytest.mark.parametrize("text", ["a", "a =", "(a = :v", "a = :v)", "a[x] = :v", "é = :v", "a.1"])
def test_what_is_no_expression_is_refused_with_a_syntax_error(text: str) -> None:
    with pytest.raises(ExpressionError, match="Syntax error"):
        compile_condition(text, ())
