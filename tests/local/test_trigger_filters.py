"""Event filters: Lambda's documented rules, and refusal of unknown operators."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local.triggers.filters import compile_criteria, compile_pattern
from local.triggers.properties import Properties


def event(**image: Any) -> dict[str, Any]:
    return {
        "eventID": "1",
        "eventName": "INSERT",
        "dynamodb": {
            "Keys": {"pk": {"S": "ready#orders#0#3"}, "sk": {"S": "0198"}},
            "NewImage": image,
            "SizeBytes": 59,
        },
    }


def image(**rules: Any) -> dict[str, Any]:
    return {"dynamodb": {"NewImage": rules}}


S = "S"
CASES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    # equality
    ({"eventName": ["INSERT"]}, event(), True),
    ({"eventName": ["INSERT", "REMOVE"]}, event(), True),
    ({"eventName": ["REMOVE"]}, event(), False),
    ({"eventName": ["insert"]}, event(), False),
    (image(City={S: ["Tokyo"]}), event(City={S: "Tokyo"}), True),
    (image(City={S: ["Tokyo"]}), event(City={S: "Tokyo "}), False),
    (image(City={S: ["Tokyo"]}), event(), False),
    (image(On={"BOOL": [True]}), event(On={"BOOL": True}), True),
    (image(On={"BOOL": [True]}), event(On={"BOOL": False}), False),
    (image(On={"BOOL": [True]}), event(On={"BOOL": 1}), False),
    (image(N={"N": ["10"]}), event(N={"N": "10"}), True),
    (image(N={"N": [10]}), event(N={"N": "10"}), False),
    # null and empty
    (image(Id={S: [""]}), event(Id={S: ""}), True),
    (image(Id={S: [""]}), event(Id={S: "x"}), False),
    (image(Id={S: [""]}), event(), False),
    (image(Id={S: [None]}), event(Id={S: None}), True),
    (image(Id={S: [None]}), event(Id={S: ""}), False),
    (image(Id={S: [None]}), event(), False),
    # all fields
    (image(A={S: ["x"]}, B={S: ["y"]}), event(A={S: "x"}, B={S: "y"}), True),
    (image(A={S: ["x"]}, B={S: ["y"]}), event(A={S: "x"}, B={S: "z"}), False),
    # prefix
    ({"dynamodb": {"Keys": {"pk": {S: [{"prefix": "ready#"}]}}}}, event(), True),
    ({"dynamodb": {"Keys": {"pk": {S: [{"prefix": "dead#"}]}}}}, event(), False),
    ({"dynamodb": {"Keys": {"pk": {S: [{"prefix": "dead#"}, {"prefix": "re"}]}}}}, event(), True),
    # exists, which looks at leaves only
    (image(z={"N": [{"exists": True}]}), event(z={"N": "1"}), True),
    (image(z={"N": [{"exists": True}]}), event(), False),
    (image(z={"N": [{"exists": False}]}), event(), True),
    (image(z={"N": [{"exists": False}]}), event(z={"N": "1"}), False),
    (image(z=[{"exists": True}]), event(z={"N": "1"}), False),
    (image(z=[{"exists": False}]), event(z={"N": "1"}), True),
    ({"dynamodb": {"OldImage": {"z": {"N": [{"exists": False}]}}}}, event(), True),
    # a list in the event counts as its elements
    (image(T={"SS": ["b"]}), event(T={"SS": ["a", "b"]}), True),
    (image(T={"SS": ["c"]}), event(T={"SS": ["a", "b"]}), False),
]


@pytest.mark.parametrize(("pattern", "given", "matches"), CASES)
def test_a_pattern_matches_as_documented(
    pattern: dict[str, Any], given: dict[str, Any], matches: bool
) -> None:
    assert compile_pattern(json.dumps(pattern))(given) is matches


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[]", "JSON object"),
        ("{}", "names a key"),
        ("{", "not JSON"),
        ('{"eventName": "INSERT"}', "'eventName'"),
        ('{"eventName": []}', "'eventName'"),
        ('{"dynamodb": {}}', "'dynamodb'"),
        ('{"detail": ["x"]}', "'detail'"),
        ('{"eventName": [{"wildcard": "*"}]}', "'wildcard'"),
        ('{"eventName": [{"suffix": "T"}]}', "'suffix'"),
        ('{"eventName": [{"anything-but": ["INSERT"]}]}', "'anything-but'"),
        ('{"dynamodb": {"SizeBytes": [{"numeric": ["=", 59]}]}}', "'numeric'"),
        ('{"dynamodb": {"$or": [{"Keys": ["x"]}]}}', "operator '.or'"),
        ('{"eventName": [{"cidr": "10.0.0.0/8"}]}', "'cidr'"),
        ('{"eventName": [{"prefix": "a", "exists": true}]}', "alone"),
        ('{"eventName": [{"prefix": 3}]}', "'prefix'"),
        ('{"eventName": [{"exists": "yes"}]}', "'exists'"),
        ('{"eventName": [["INSERT"]]}', "expected"),
        ('{"eventName": ["A"], "eventName": ["B"]}', "twice"),
        ('{"eventName": ["' + "x" * 4096 + '"]}', "4096"),
    ],
)
def test_a_pattern_that_is_not_known_is_refused_by_name(text: str, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        compile_pattern(text)


def criteria(*patterns: dict[str, Any]) -> Properties:
    filters = [{"Pattern": json.dumps(pattern)} for pattern in patterns]
    return Properties("Mapping", {"Filters": filters})


def test_the_patterns_of_one_mapping_are_alternatives() -> None:
    matcher = compile_criteria(criteria({"eventName": ["REMOVE"]}, {"eventID": ["1"]}))
    assert matcher is not None
    assert matcher(event())
    assert not matcher(event() | {"eventID": "2"})


def test_no_patterns_mean_no_filter() -> None:
    assert compile_criteria(criteria()) is None


def test_a_mapping_with_six_patterns_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 5"):
        compile_criteria(criteria(*[{"eventID": ["1"]}] * 6))
