"""A process that acks its share of one batch, for the contract test with many of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from fairbox import BatchBusy, Batches

from tests.support.batch_tables import World

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

    from fairbox.batches.results import AckResult

WORKERS = 16
GROUPS = 72  # 8 more than hang on the root: they have a node
OWN = 4  # items of each group that a worker acks; as many of its neighbour's
GROUP_SIZE = OWN * WORKERS


@dataclass(frozen=True)
class Share:
    """The number of a process, and its work."""

    endpoint: str
    prefix: str
    batch: str
    number: int


@dataclass(frozen=True)
class Done:
    """The answers to a process: items that its calls changed, batches that they completed."""

    number: int
    changed: int
    completed: tuple[str, ...]
    error: str = ""


def client_of(endpoint: str) -> Any:
    """Return a client that does not repeat calls by itself."""
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
    )


def work(share: Share, together: Barrier, answers: Queue[Done]) -> None:
    """Ack the share in random order, three groups a call; the first process seals half-way."""
    try:
        answers.put(_work(share, together))
    except Exception as error:  # noqa: BLE001 - the test reports it
        answers.put(Done(share.number, 0, (), repr(error)))
        together.abort()


def _work(share: Share, together: Barrier) -> Done:
    batches = World(client_of(share.endpoint), share.prefix).batches()
    groups = list(range(GROUPS))
    random.Random(share.number).shuffle(groups)
    changed, completed = 0, list[str]()
    together.wait(timeout=60)
    for start in range(0, GROUPS, 3):
        if share.number == 0 and start == GROUPS // 2:
            batches.seal(share.batch)
        items = [item for group in groups[start : start + 3] for item in _items(share, group)]
        hit, done = _ack(batches, items)
        changed, completed = changed + hit, [*completed, *done]
    return Done(share.number, changed, tuple(completed))


def _items(share: Share, group: int) -> list[str]:
    first = share.number * OWN
    indexes = [index % GROUP_SIZE for index in range(first, first + 2 * OWN)]
    return [f"{share.batch}:{group}:{index}" for index in indexes]


def _ack(batches: Batches, items: list[str]) -> tuple[int, tuple[str, ...]]:
    """Ack what is left until nothing is; return what the calls were told together."""
    changed, completed = 0, tuple[str, ...]()
    for _ in range(50):
        result: AckResult | BatchBusy
        try:
            result = batches.ack(items)
        except BatchBusy as busy:
            result = busy
        changed += result.changed
        completed += result.completed
        if not isinstance(result, BatchBusy):
            return changed, completed
        items = list(result.left)
    raise AssertionError(f"{len(items)} items stayed busy")
