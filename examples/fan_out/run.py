"""Publishes pictures as a batch, works them off, and waits for the batch's only message."""

from __future__ import annotations

import json
import sys
import threading

from fairbox import Batches, Message, Outbox, Queue, Topic

count = int(sys.argv[1])
outbox, queue, batches = Outbox.from_env(), Queue.from_env(), Batches.from_env()
outbox.create_topic(Topic("pictures"))
outbox.create_topic(Topic("catalogs"))

batch = batches.open(user_key="catalog-7", on_complete="catalogs")
groups = batches.add(batch.id, count, request_id="page-1")
outbox.add_many(
    Message(topic="pictures", body=json.dumps({"picture": number}).encode(), batch_item=item)
    for number, item in enumerate(item for group in groups for item in group.item_ids())
)
batches.seal(batch.id)

finished = threading.Event()


def work() -> None:
    """Resize pictures until the batch is complete; the first try of every tenth one fails."""
    while not finished.is_set():
        for message in queue.receive("pictures", max_messages=10, wait=1):
            picture = json.loads(message.message.body)["picture"]
            if picture % 10 == 0 and message.receive_count == 1:
                queue.nack(message.receipt, reason="the disk is full")
            else:
                queue.ack(message.receipt)  # and with it its item of the batch


workers = [threading.Thread(target=work) for _ in range(4)]
for worker in workers:
    worker.start()

told = None
while told is None:
    for message in queue.receive("catalogs", wait=20):
        completion = json.loads(message.message.body)
        queue.ack(message.receipt)
        if completion["id"] == batch.id:
            told = completion
finished.set()
for worker in workers:
    worker.join()
print(f"{told['user_key']}: {told['total']} pictures, {told['failed']} failed")
