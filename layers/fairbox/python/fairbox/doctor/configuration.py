"""Checks of what was set: the environment, topics, subscriptions, destinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox import settings as names
from fairbox.doctor.aws import Missing
from fairbox.doctor.findings import Finding, Reporter, check, each
from fairbox.errors import InvalidInput
from fairbox.model.regions import region_of
from fairbox.settings import WEBHOOK_SECRETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.doctor.examined_deployment import Deployment

DELETING_MS: Final = 3_600_000
DESTINATIONS: Final = 50
_NOTHING: Final = "nothing works"
_WANTED: Final = {
    names.OUTBOX_TABLE: _NOTHING,
    names.DELIVERIES_TABLE: _NOTHING,
    names.BATCHES_TABLE: "batches are refused",
    names.BODIES_BUCKET: "bodies over 300,000 bytes are refused",
    names.DOORBELL_QUEUE_URL: "`fairbox outbox sweep` is refused",
}


@check("settings", "The environment says what is needed")
def settings(deployment: Deployment) -> Iterator[Finding]:
    """The tables are named; bucket and queue too, without which some commands are refused."""
    for name, without in _WANTED.items():
        report = Reporter("settings", name)
        value = deployment.settings.optional(name)
        if value is not None:
            yield report.ok(value)
        elif without == _NOTHING:
            yield report.fail(
                f"it is not set: {without}",
                f"export {name}=...; the stacks' resources have its name.",
            )
        else:
            yield report.warn(f"it is not set: {without}", f"export {name}=...; see docs/reference/"
                              "settings.md.")  # fmt: skip


@check("topics", "Topics and subscriptions deliver")
def topics(deployment: Deployment) -> Iterator[Finding]:
    """No topic or subscription is paused, no circuit is open, no deletion is stuck."""
    bad = [finding for state in deployment.topics for finding in _topic(deployment, state)]
    yield from bad or [Reporter("topics", f"{len(deployment.topics)} topics").ok()]


def _topic(deployment: Deployment, state: Any) -> Iterator[Finding]:
    name = state.topic.name
    report = Reporter("topics", f"topic {name}")

    if state.paused:
        yield report.warn(
            "receiving from it is paused", "Resume it when the reason is gone: outbox.resume_topic."
        )
    # a deletion waits for 60 s between its two calls: after an hour nobody makes the second
    if state.deleting is not None and deployment.now - state.deleting > DELETING_MS:
        yield report.warn(
            "its deletion began over an hour ago", f"fairbox topic delete {name} goes on with it."
        )

    for subscription in state.subscriptions:
        status = state.status(subscription.name)
        own = Reporter("topics", f"subscription {name}/{subscription.name}")
        if status.paused:
            yield own.warn(
                f"it is paused: {status.pause_reason or 'no reason was given'}",
                f"fairbox subscription resume {name} {subscription.name}",
            )
        if status.circuit != "closed":
            yield own.warn(
                f"its circuit is {status.circuit}: {status.reason}",
                f"Look at {subscription.destination}; probes close the circuit by themselves.",
            )


@check("destinations", "Destinations exist")
def destinations(deployment: Deployment) -> Iterator[Finding]:
    """The queue, topic, bus, stream or function of each subscription is there (50 at most)."""
    # several topics may share a destination: it is asked about once
    addresses = list(
        dict.fromkeys(s.destination for state in deployment.topics for s in state.subscriptions)
    )
    known = {state.topic.name for state in deployment.topics}

    def examine(report: Reporter, address: str) -> Iterator[Finding]:
        scheme, _, rest = address.partition(":")
        if scheme in ("topic", "feed"):
            there = known if scheme == "topic" else deployment.feeds
            missing = report.fail(f"there is no such {scheme}", f"fairbox {scheme} create {rest}")
            yield from report.bad_or_ok([] if rest in there else [missing])
            return

        question = _question(scheme, rest)
        if question is None:
            # the functions send, so their environment counts and not the caller's
            signs = any(WEBHOOK_SECRETS in f.environment for f in deployment.functions.values())
            unsigned = report.warn(
                "its requests are not signed: anybody can send such",
                "Set webhook_secrets: docs/how-to/receive-webhooks.md.",
            )
            called = report.unknown("webhooks are not called by this command")
            yield called if signs else unsigned
            return

        try:
            # in the destination's own Region, which its address names
            deployment.aws.ask(*question[0], region=region_of(rest), **question[1])
        except InvalidInput as error:
            yield report.fail(str(error), "Correct the subscription: fairbox subscription add.")
        except Missing:
            yield report.fail(
                "it is not there", "Make it, or correct the subscription: fairbox subscription add."
            )
        else:
            yield report.ok()

    yield from each("destinations", addresses[:DESTINATIONS], examine)
    if len(addresses) > DESTINATIONS:
        more = f"{len(addresses) - DESTINATIONS} more"
        # told, so that nobody takes the others for examined
        yield Reporter("destinations", more).unknown(f"{DESTINATIONS} are looked at")
    if not addresses:
        yield Reporter("destinations", "subscriptions").ok("there are none")


def _question(scheme: str, rest: str) -> tuple[tuple[str, str], dict[str, Any]] | None:
    """Return the call that asks whether a destination is there; None: there is none."""
    match scheme:
        case "sqs":
            return ("sqs", "get_queue_attributes"), {
                "QueueUrl": rest,
                "AttributeNames": ["QueueArn"],
            }
        case "sns":
            return ("sns", "get_topic_attributes"), {"TopicArn": rest}
        case "events":
            return ("events", "describe_event_bus"), {"Name": rest}
        case "kinesis":
            return ("kinesis", "describe_stream_summary"), {"StreamARN": rest}
        case "lambda":
            return ("lambda", "get_function_configuration"), {"FunctionName": rest}
    return None
