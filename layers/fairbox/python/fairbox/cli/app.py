"""The command line: the root with every noun."""

from __future__ import annotations

from fairbox.cli import (
    batch,
    cost,
    dlq,
    doctor,
    env,
    feed,
    message,
    outbox,
    queue,
    row_import,
    shell,
    smoke,
    subscription,
    topic,
)
from fairbox.cli.commands import verb
from fairbox.cli.root import app

__all__ = ["app"]

app.add_typer(batch.batch, name="batch")
app.add_typer(topic.topic, name="topic")
app.add_typer(message.message, name="message")
app.add_typer(queue.queue, name="queue")
app.add_typer(subscription.subscription, name="subscription")
app.add_typer(dlq.dlq, name="dlq")
app.add_typer(outbox.outbox, name="outbox")
app.add_typer(feed.feed, name="feed")
verb(app, "doctor", example="fairbox doctor")(doctor.doctor)
verb(app, "env", example="fairbox env --name Fairbox", tables=False)(env.env)
verb(app, "smoke", example="fairbox smoke --without kinesis")(smoke.smoke)
verb(app, "shell", example="fairbox shell")(shell.shell)
verb(app, "import", example="fairbox import --layout brighter brighter_outbox --yes")(
    row_import.import_rows
)
verb(app, "cost", example="fairbox cost --rate 12 --size 700", tables=False)(cost.cost)
