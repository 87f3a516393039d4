"""Comparison of the cost meter with DynamoDB Local: the same calls must cost the same units."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import ClientError
from fairbox.dynamodb.definitions import table_definitions
from fairbox.testing import CostMeter
from fairbox.testing.application import DELIVERIES, OUTBOX

from benchmarks.deployment import Deployment, Load, orders_definition
from benchmarks.figures import Figure
from local.engines.endpoints import Endpoints, dynamodb_client
from local.engines.servers import DynamoDbLocal

if TYPE_CHECKING:
    from collections.abc import Callable

Place = tuple[str, str, str]
Units = tuple[float, float]
LOADS = (
    Load(rate=20, seconds=4),
    Load(rate=20, seconds=4, transactional=True),
    Load(rate=40, seconds=3, ordered=True),
)


class DisagreementError(Exception):
    """One engine refuses a call that the other takes."""


class Mirror:
    """Makes every call on two clients; the first one's answers count.

    A call that only one of them refuses is an error, because the two would diverge.
    """

    def __init__(self, first: Any, second: Any) -> None:
        self._first = first
        self._second = second

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._first, name)
        if not callable(method):
            return method
        other = getattr(self._second, name)

        def call(**request: Any) -> Any:
            refusal = _refusal(lambda: other(**request))
            try:
                answer = method(**request)
            except ClientError as error:
                if refusal is None:
                    raise DisagreementError(f"only one engine refuses {name}") from error
                raise
            if refusal is not None:
                raise DisagreementError(f"only one engine refuses {name}") from refusal
            return answer

        return call


def _refusal(work: Callable[[], Any]) -> ClientError | None:
    try:
        work()
    except ClientError as error:
        return error
    return None


def compare() -> tuple[Figure, list[str]]:
    """Run loads on both engines.

    Returns:
        The share of places (operation, table, index) where they agree, and the differences.

    Raises:
        DisagreementError: only one of them refuses a call.
    """
    places = 0
    differences: list[str] = []
    engine = DynamoDbLocal().start()
    try:
        for number, load in enumerate(LOADS):
            computed, reported = _both(load, engine.endpoint, random.Random(number))
            for place in sorted(computed.keys() | reported.keys()):
                pair = computed.get(place, (0.0, 0.0)), reported.get(place, (0.0, 0.0))
                places += 1
                if pair[0] != pair[1]:
                    text = f"{'/'.join(place)}: {pair[0]} computed, {pair[1]} reported"
                    differences.append(text)
    finally:
        engine.stop()
    share = 1 - len(differences) / places
    return Figure("cost.meter_agreement", "share", share), differences


def _both(
    load: Load, endpoint: str, rng: random.Random
) -> tuple[dict[Place, Units], dict[Place, Units]]:
    """Run a load; return its computed cost and the cost that the engine reports.

    Each load has its own random numbers, because the engine would recognise repeated tokens.
    """
    client = client_of(endpoint)
    tables = [*table_definitions(outbox=OUTBOX, deliveries=DELIVERIES), orders_definition()]
    for definition in tables:
        client.create_table(**definition)
    meter = CostMeter(client)
    deployment = Deployment(wrap=lambda engine: Mirror(engine, meter), rng=rng)
    deployment.run(load)
    for definition in tables:
        client.delete_table(TableName=definition["TableName"])
    costs = meter.reading().costs
    reported = {place: (c.wru, c.rru) for place, c in costs.items() if c.wru or c.rru}
    return deployment.accounts.by_place(), reported


def client_of(endpoint: str) -> Any:
    """Return a DynamoDB client of an engine that makes every call once."""
    variables = Endpoints(dynamodb=endpoint, services=endpoint, firehose=endpoint).shell_variables()
    return dynamodb_client(variables, config=Config(retries={"total_max_attempts": 1}))
