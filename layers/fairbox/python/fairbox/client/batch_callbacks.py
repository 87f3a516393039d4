"""Callbacks of single batches: a topic, or a destination behind a topic of its own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fairbox.client.topic_administration import check_address
from fairbox.errors import InvalidInput, UnknownTopic
from fairbox.model.messages import check_topic
from fairbox.model.topics import SCHEMES, Subscription, Topic
from fairbox.tables.batch_values import Callbacks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.client.outbox import Outbox

CALLBACK_PREFIX: Final = "fairbox.batches.to."
"""Of the topics that stand before the destinations of callbacks; a hash of the address follows."""
RETRY_HOURS: Final = 24
"""The time for retries of a batch with `on_success`, unless `open` gives another."""
MAX_RETRY_HOURS: Final = 7 * 24
_OURS: Final = "fairbox.batches."
_EXPECTED: Final = f"the name of a topic, or a destination ({':, '.join(SCHEMES)}:)"


def resolve_callbacks(outbox: Outbox, given: Mapping[str, str | None]) -> Callbacks:
    """Return the topics of callbacks; a destination's topic is created if it is missing.

    All addresses are checked before anything is created.

    Raises:
        InvalidInput: an address is no topic that exists and no destination; it names the field.
    """
    found: dict[str, Subscription | str | None] = {}
    for field, address in given.items():
        found[field] = None if address is None else _checked(outbox, field, address)
    return Callbacks(**{field: _topic(outbox, field, target) for field, target in found.items()})


def check_retry_hours(hours: int | None, on_success: str | None) -> int:
    """Return for how many hours a batch waits for retries: a day where success is asked for.

    Raises:
        InvalidInput: it is not a whole number from 0 to 168.
    """
    if hours is None:
        return 0 if on_success is None else RETRY_HOURS
    if isinstance(hours, bool) or not isinstance(hours, int) or not 0 <= hours <= MAX_RETRY_HOURS:
        raise InvalidInput("retry_hours", f"a whole number from 0 to {MAX_RETRY_HOURS}")
    return hours


def _checked(outbox: Outbox, field: str, address: str) -> Subscription | str:
    """Return a topic's name, or the subscription that brings messages to a destination."""
    if not isinstance(address, str):
        raise InvalidInput(field, _EXPECTED)

    scheme, colon, rest = address.partition(":")
    name = rest if scheme == "topic" else address
    try:
        # no name of a topic has a colon
        if colon and scheme != "topic":
            # an address may be longer than a topic's name, and has characters that no name may have
            digest = hashlib.sha256(address.encode()).hexdigest()[:16]
            subscription = Subscription(CALLBACK_PREFIX + digest, "callback", address)
            check_address(address, outbox.tables.calls.region)
            _check_host(scheme, address)
            return subscription
        check_topic(name)
        stays = outbox.topic(name).deleting is None
    except InvalidInput as error:
        raise InvalidInput(field, error.expected if colon else _EXPECTED) from None
    except UnknownTopic:
        raise InvalidInput(field, f"a topic that exists; there is no {name!r}") from None

    if not stays:
        raise InvalidInput(field, f"a topic that stays; {name!r} is being deleted")
    if name.startswith(_OURS):
        raise InvalidInput(field, f"another topic than those of {_OURS}*")
    return name


def _check_host(scheme: str, address: str) -> None:
    if scheme in ("http", "https") and not urlsplit(address).hostname:
        raise InvalidInput("destination", "a URL with a host")


def _topic(outbox: Outbox, field: str, target: Subscription | str | None) -> str | None:
    """Return the topic of a callback; a destination's topic is created if it is missing."""
    if not isinstance(target, Subscription):
        return target
    try:
        there = outbox.topic(target.topic)
    except UnknownTopic:
        there = outbox.create_topic(Topic(target.topic, shards=1))

    # an earlier call may have been cut off between the topic and its subscription
    if target.name not in there.subscription_names:
        try:
            outbox.add_subscription(target)
        except InvalidInput as error:
            raise InvalidInput(field, error.expected) from None
    return target.topic
