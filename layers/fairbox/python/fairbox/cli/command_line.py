"""The command line: the root with every noun."""

from __future__ import annotations

from fairbox.cli.batch_verbs import batch
from fairbox.cli.commands import app, verb
from fairbox.cli.cost_verb import cost
from fairbox.cli.dead_letter_verbs import dlq
from fairbox.cli.deployment_verbs import doctor, env, smoke
from fairbox.cli.feed_verbs import feed
from fairbox.cli.message_verbs import message
from fairbox.cli.outbox_verbs import import_rows, outbox
from fairbox.cli.queue_verbs import queue
from fairbox.cli.shell import shell
from fairbox.cli.subscription_verbs import subscription
from fairbox.cli.topic_verbs import topic

__all__ = ["app"]

app.add_typer(batch, name="batch")
app.add_typer(topic, name="topic")
app.add_typer(message, name="message")
app.add_typer(queue, name="queue")
app.add_typer(subscription, name="subscription")
app.add_typer(dlq, name="dlq")
app.add_typer(outbox, name="outbox")
app.add_typer(feed, name="feed")
verb(app, "doctor", example="fairbox doctor")(doctor)
verb(app, "env", example="fairbox env --name Fairbox", tables=False)(env)
verb(app, "smoke", example="fairbox smoke --without kinesis")(smoke)
verb(app, "shell", example="fairbox shell")(shell)
verb(app, "import", example="fairbox import --layout brighter brighter_outbox --yes")(import_rows)
verb(app, "cost", example="fairbox cost --rate 12 --size 700", tables=False)(cost)
