"""Checks of the queues: doorbells, acks, and what was put aside."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fairbox.doctor.aws import Missing, NotAnswered
from fairbox.doctor.examined_deployment import QUEUE, Deployment
from fairbox.doctor.findings import Finding, Reporter, check, each
from fairbox.settings import ACK_QUEUE_URL, DOORBELL_QUEUE_URL, LATER_QUEUE_URL

if TYPE_CHECKING:
    from collections.abc import Iterator


_SETTINGS: Final = (DOORBELL_QUEUE_URL, LATER_QUEUE_URL, ACK_QUEUE_URL)
_ARN: Final = "QueueArn"


def _urls(deployment: Deployment) -> list[str]:
    """The queues that the environment and the stacks name, each once."""
    named = [url for name in _SETTINGS if (url := deployment.settings.optional(name))]
    with suppress(NotAnswered):  # check `stacks` says so
        named += [resource.name for resource in deployment.resources(QUEUE)]
    return list(dict.fromkeys(named))


def _short(url: str) -> str:
    return url.rpartition("/")[2]


def _policy(attributes: dict[str, str]) -> str:
    """The ARN of the queue where a queue's failures go; empty: none."""
    text = attributes.get("RedrivePolicy")
    return str(json.loads(text)["deadLetterTargetArn"]) if text else ""


@check("queues", "Queues wait long enough, and put failures aside")
def queues(deployment: Deployment) -> Iterator[Finding]:
    """Doorbells lie in a FIFO queue.

    Each queue that starts a function hides what is worked on for at least the function's time-out,
    and has a queue for dead letters.
    """
    doorbells = deployment.settings.optional(DOORBELL_QUEUE_URL)
    # all queues first: only then is known which of them are dead-letter queues of others
    aside = {_policy(deployment.queue(url)) for url in _urls(deployment) if _there(deployment, url)}

    def examine(report: Reporter, url: str) -> Iterator[Finding]:
        try:
            attributes = deployment.queue(url)
        except Missing:
            yield report.fail("there is no such queue", "Deploy the stacks again, and read the "
                              "queue's URL from their resources.")  # fmt: skip
            return
        yield from report.bad_or_ok(_queue(report, deployment, attributes, url == doorbells, aside))

    urls = _urls(deployment)
    yield from each("queues", urls, examine, _short)


def _there(deployment: Deployment, url: str) -> bool:
    try:
        return bool(deployment.queue(url))
    except NotAnswered:
        return False


def _queue(
    report: Reporter,
    deployment: Deployment,
    attributes: dict[str, str],
    fifo: bool,
    aside: set[str],
) -> Iterator[Finding]:
    arn = attributes[_ARN]
    if fifo and attributes.get("FifoQueue") != "true":
        yield report.fail(
            "doorbells need a FIFO queue", "Set FAIRBOX_DOORBELL_QUEUE_URL to queue DoorbellsNow."
        )

    needed = _timeout(deployment, arn)
    if needed and arn not in aside and not _policy(attributes):
        # a dead-letter queue needs none of its own
        yield report.warn(
            "what fails in it comes again and again", "Give it a redrive policy: deploy the stacks."
        )

    if int(attributes["VisibilityTimeout"]) < needed:
        yield report.fail(
            f"its visibility of {attributes['VisibilityTimeout']} s is below the function's "
            f"time-out of {needed} s",
            "Two functions would work on one message: deploy the stacks again.",
        )


def _timeout(deployment: Deployment, arn: str) -> int:
    """Seconds that a function of the queue may take; 0: none is known."""
    try:
        roles = [
            deployment.role_of(m["FunctionArn"]) for _, m in deployment.mappings
            if m and m["EventSourceArn"] == arn
        ]  # fmt: skip
        return max(
            (int(deployment.functions[r].configuration["Timeout"]) for r in roles if r), default=0
        )
    except NotAnswered:
        return 0


@check("dead-letter-queues", "Nothing was put aside")
def dead_letter_queues(deployment: Deployment) -> Iterator[Finding]:
    """The queues of what failed too often are empty."""
    arns: set[str] = set()

    def named(_: Reporter, url: str) -> Iterator[Finding]:
        with suppress(Missing):  # check `queues` says so
            arns.add(_policy(deployment.queue(url)))
        # a generator without findings, as `each` iterates over it
        yield from ()

    yield from each("dead-letter-queues", _urls(deployment), named, _short)
    arns.discard("")

    def examine(report: Reporter, arn: str) -> Iterator[Finding]:
        name = arn.rpartition(":")[2]
        try:
            # a policy names an ARN, and calls take URLs
            url = deployment.aws.ask("sqs", "get_queue_url", QueueName=name)["QueueUrl"]
            count = int(deployment.queue(url)["ApproximateNumberOfMessages"])
        except Missing:
            yield report.fail(
                "it is gone: what fails too often is lost", "Deploy the stacks again."
            )
            return

        if count:
            yield report.fail(
                f"{count} messages lie there",
                "Find the cause in the function's log, then move them back: aws sqs "
                f"start-message-move-task --source-arn {arn}. Doorbells may be purged: the sweep "
                "rings again.",
            )
        else:
            yield report.ok("empty")

    yield from each("dead-letter-queues", sorted(arns), examine, lambda arn: arn.rpartition(":")[2])
