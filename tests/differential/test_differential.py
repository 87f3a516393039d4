"""Random requests on the in-memory engine and on DynamoDB Local: the same answers and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from fairbox.testing import ManualClock, MemoryDynamoDB
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from tests.differential.differences import DIFFERENCES, DIVERGING, Difference, levelled
from tests.differential.generation import Case, cases, library_cases
from tests.differential.pair import ITEMS, Pair, Request, plain_numbers, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

AVAILABLE_PROVIDERS["repeatable"] = f"{__name__}.Repeatable"
pytestmark = pytest.mark.engine
READS = {"get_item", "query", "scan", "batch_get_item", "transact_get_items"}
WORDED_FREELY = {"ValidationException", "ParamValidationError"}
"""Codes whose messages differ in words, and in which of several faults they name first."""
USUAL, ALL = 100, 1_500
"""Requests of each kind in `make test`, and in `make test-all`."""
KINDS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(cases, id="free", marks=pytest.mark.extended),
        pytest.param(library_cases, id="library"),
    ],
)


class Repeatable(HypothesisProvider):
    """Draws that depend on the seed alone, and not on constants of the modules that are loaded."""

    def _maybe_draw_constant(self, *_args: Any, **_kwargs: Any) -> None:
        return None


class Diverged(Exception):
    """The engines hold different items from here on, by a known difference."""


@pytest.fixture(scope="session")
def pair(dynamodb_local_endpoint: str) -> Pair:
    local = boto3.client(
        "dynamodb",
        endpoint_url=dynamodb_local_endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}),
    )
    return Pair(MemoryDynamoDB(ManualClock()), local)


def difference(pair: Pair, request: Request) -> str:
    """Make a request on both engines; return what is not known of their difference.

    Raises:
        Diverged: by a known difference one has written, and the other has not.
    """
    ours, theirs = pair.ask(request)
    mine, other, known = levelled(request, ours, theirs)
    differs = mine.code != other.code or mine.body != other.body
    if not differs and mine.code not in WORDED_FREELY:
        differs = mine.message != other.message
    if differs:
        return f"{request!r}\n\nin memory: {ours!r}\n\nDynamoDB Local: {theirs!r}"
    if request.method in READS:
        return ""
    if DIVERGING & known:
        raise Diverged
    found = (differing(pair, table) for table in sorted(tables_of(request)))
    return next((f"{request!r}\n\n{text}" for text in found if text), "")


def differing(pair: Pair, table: str, index: str | None = None) -> str:
    """Return the items that only one engine has in a table or an index."""
    mine, other = (plain_numbers(items) for items in pair.contents(table, index))
    extra = [item for item in mine if item not in other]
    lacking = [item for item in other if item not in mine]
    if not extra and not lacking and len(mine) == len(other):
        return ""
    return f"{index or table}: only in memory: {extra}, only in DynamoDB Local: {lacking}"


def compare(pair: Pair, requests: list[Request]) -> str:
    """Make requests on both engines; return the first difference in an answer or a table."""
    for request in requests:
        if found := difference(pair, request):
            return found
    touched = {table for r in requests if r.method not in READS for table in tables_of(r)}
    places = [(table, index) for table in sorted(touched) for index in pair.indexes(table)]
    return next(filter(None, (differing(pair, *place) for place in places)), "")


def explore(
    pair: Pair, kind: Callable[[], SearchStrategy[Case]], requests: int, number: int
) -> int:
    """Run random cases of a kind until so many requests were made.

    The free ones are always the same for a number; the library's change with the library.
    """
    begun = pair.requests

    @seed(number)
    @settings(
        backend="repeatable",
        max_examples=requests,
        database=None,
        print_blob=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(kind())
    def run(case: Case) -> None:
        if pair.requests - begun >= requests and not pair.failed:
            return
        pair.begin(case.before)
        try:
            found = compare(pair, case.requests)
        except Diverged:
            pair.spoil()
            return
        if found:
            pair.failed = True
            pair.spoil()
            pytest.fail(f"after {case!r}\n\n{found}", pytrace=False)

    run()
    return pair.requests - begun


@KINDS
def test_both_engines_answer_alike(pair: Pair, kind: Callable[[], SearchStrategy[Case]]) -> None:
    assert explore(pair, kind, USUAL, 0) >= USUAL


@pytest.mark.extended  # two minutes: 3,000 requests to the engine and as many looks at its tables
@KINDS
def test_both_engines_answer_alike_for_long(
    pair: Pair, kind: Callable[[], SearchStrategy[Case]]
) -> None:
    assert explore(pair, kind, ALL, 1) >= ALL


@pytest.mark.parametrize("known", DIFFERENCES, ids=lambda known: known.name)
def test_a_known_difference_still_occurs(pair: Pair, known: Difference) -> None:
    pair.begin({})
    *before, last = known.example
    for request in before:
        pair.ask(request)
    ours, theirs = pair.ask(last)
    pair.spoil()
    assert (ours.code, ours.body, ours.message) != (theirs.code, theirs.body, theirs.message)
    level = known.level(last, ours, theirs)
    assert level[0] == level[1]


@pytest.mark.extended  # a test of the test
def test_an_engine_that_loses_a_write_or_answers_otherwise_is_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Request("put_item", {"TableName": ITEMS, "Item": {"pk": {"S": "a"}, "sk": {"S": "1"}}})
    get = Request("get_item", {"TableName": ITEMS, "Key": {"pk": {"S": "a"}, "sk": {"S": "1"}}})
    pair.begin({})
    assert compare(pair, [put, get]) == ""
    monkeypatch.setattr(pair.memory, "get_item", lambda **_: {})
    assert "DynamoDB Local: {'Item'" in compare(pair, [get])
    pair.begin({})
    monkeypatch.setattr(pair.memory, "put_item", lambda **_: {})
    assert "only in DynamoDB Local: [{" in compare(pair, [put])
    pair.spoil()
