"""A process that delivers offloaded bodies and prints its peak, in bytes over what it had before.

Called with: the port of S3 and of the receivers, webhooks of a message, messages, bytes of a body.
Everything from the dispatcher to the sockets is the code that ships.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

from fairbox import Subscription, Topic
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.destinations.factory import DestinationFactory
from fairbox.dispatch.dispatcher import Dispatcher, run_concurrently
from fairbox.model.clock import SystemClock
from fairbox.model.messages import Message, MessageRef
from fairbox.sdk.clients import make_client
from fairbox.tables.stored_messages import Offloaded, StoredMessage
from fairbox.testing.application import MemoryApplication


def main() -> None:
    """Deliver, and print a JSON object with the peak and the number of messages removed."""
    port, webhooks, messages, size = map(int, sys.argv[1:])
    os.environ |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test")
    app = MemoryApplication()
    app.outbox.create_topic(Topic("orders", shards=1))
    app.outbox.add_subscriptions(
        Subscription("orders", f"hook-{n}", f"http://127.0.0.1:{port}/{n}") for n in range(webhooks)
    )
    s3 = make_client("s3", f"http://127.0.0.1:{port}", "eu-west-1")
    app.tables.bodies = S3Bodies(s3, "bodies")
    factory = DestinationFactory(
        clients=lambda *_, **__: None,
        clock=SystemClock(),
        add_to_topic=lambda _: [],
        secrets=lambda _: [b"k" * 32, b"l" * 32],
        allow_private=True,
    )
    dispatcher = Dispatcher(
        app.tables,
        factory,
        app.doorbells,
        clock=SystemClock(),
        rng=random.Random(1),
        fan_out=run_concurrently,
    )
    warm_up = _stored(app, 1000)
    dispatcher.deliver([warm_up], deadline=time.time() + 60)
    work = [_stored(app, size) for _ in range(messages)]
    before = _bytes("VmRSS")
    result = dispatcher.deliver(work, deadline=time.time() + 60)
    sys.stdout.write(json.dumps({"peak": _bytes("VmHWM") - before, "removed": result.removed}))


def _bytes(name: str) -> int:
    """Return a figure of this process's memory; `ru_maxrss` would have its parent's peak too."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(name)).split()[1]) * 1024


def _stored(app: MemoryApplication, size: int) -> StoredMessage:
    id_ = app.ids.next()
    place = Offloaded("bodies", f"bodies/orders/{id_}-{size}")
    message = Message(topic="orders", body=b"", id=id_)
    ref = MessageRef("orders", 0, 0, id_)
    return StoredMessage(message, ref, "ready", size, offloaded=place)


if __name__ == "__main__":
    main()
