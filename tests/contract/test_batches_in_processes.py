"""Sixteen processes ack one batch on DynamoDB Local: it completes once, and nothing is lost."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

import pytest
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.tables.batch_records import emptied
from fairbox_simulation.batches.invariants import broken, pieces

from tests.contract.ack_processes import (
    GROUP_SIZE,
    GROUPS,
    WORKERS,
    Done,
    Share,
    client_of,
    work,
)
from tests.support.batch_tables import made_world

if TYPE_CHECKING:
    from tests.support.batch_tables import World

ITEMS = GROUPS * GROUP_SIZE
_LONGEST = 120  # seconds; a few on a quiet machine

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def world(dynamodb_local_endpoint: str) -> World:
    return made_world(client_of(dynamodb_local_endpoint))


def _run(endpoint: str, world: World, batch: str) -> list[Done]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.contract.ack_processes"])  # imported once
    together, answers = context.Barrier(WORKERS), context.Queue()
    shares = [Share(endpoint, world.prefix, batch, number) for number in range(WORKERS)]
    processes = [context.Process(target=work, args=(s, together, answers)) for s in shares]
    for process in processes:
        process.start()
    try:
        return [answers.get(timeout=_LONGEST) for _ in processes]
    finally:
        for process in processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()


@pytest.mark.extended  # processes under load
def test_sixteen_processes_complete_one_batch_once(
    dynamodb_local_endpoint: str, world: World
) -> None:
    batches = world.batches()
    batch = batches.open("many").id
    batches.add(batch, ITEMS, request_id="r", group_size=GROUP_SIZE)
    assert pieces(world.items()).nodes

    done = _run(dynamodb_local_endpoint, world, batch)

    assert [d.error for d in done if d.error] == []
    keys = [child for child in map(emptied, world.items()) if child and not isinstance(child, str)]
    # who lost a race three times leaves the rest to the stream: this is what it does
    completed = [
        *(b for d in done for b in d.completed),
        *BatchMaintenance(batches).cascade.cascade(keys),
    ]
    assert set(completed) == {batch}, "several calls may find it complete"
    [message] = world.completed()
    assert (message["id"], message["total"], message["acked"]) == (batch, ITEMS, ITEMS)
    assert sum(d.changed for d in done) == ITEMS
    progress = batches.progress(batch)
    assert (progress.complete, progress.total, progress.acked) == (True, ITEMS, ITEMS)
    assert (progress.pending, progress.failed, list(batches.missing(batch))) == (0, 0, [])
    assert broken(world.items(), [batch]) == ""
