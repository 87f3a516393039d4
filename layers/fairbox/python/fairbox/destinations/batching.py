"""Destinations that take many messages a call and answer for each: packing, sizes, outcomes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.cloudevents import envelope
from fairbox.destinations.outcomes import of_error, refused, throttled, too_large
from fairbox.errors import InvalidInput
from fairbox.model.chunks import chunks

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from fairbox.dispatch.ports import Limits, Outcome
    from fairbox.tables.stored_messages import StoredMessage

_MEMO_ENTRIES: Final = 256
_MEMO_BYTES: Final = 1024 * 1024  # of each destination of a process


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message as an entry of a call, and the bytes that it takes of the call's limit."""

    entry: dict[str, Any]
    size: int


def fitting(stored: StoredMessage, room: int) -> bytes:
    """Return the envelope: with the body; with its address where it has one and does not fit."""
    whole = envelope(stored)
    # the body lies in S3 anyway: a receiver fetches it there
    if len(whole) > room and stored.offloaded is not None:
        return envelope(stored, uri=stored.offloaded.uri)
    return whole


class BatchDestination(ABC):
    """A destination of AWS that takes entries.

    Args:
        client: the service's boto3 client; its time-outs bound each call.
        address: without its scheme.

    Attributes:
        pattern: of an address.
        expected: the same in words.

    Raises:
        InvalidInput: the address does not match.
    """

    limits: Limits
    pattern: re.Pattern[str]
    expected: str
    quick = True

    def __init__(self, client: Any, address: str) -> None:
        if self.pattern.fullmatch(address) is None:
            raise InvalidInput("destination", self.expected)
        self.client = client
        self.address = address
        self._memo: dict[str, tuple[StoredMessage, Prepared]] = {}
        self._memo_bytes = 0

    @abstractmethod
    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's entry."""

    @abstractmethod
    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call and return one outcome an entry; boto3's errors are not caught."""

    @property
    def alone(self) -> int:
        """Bytes that one message may take."""
        return self.limits.bytes

    def size(self, message: StoredMessage) -> int:
        """Return the bytes that the message takes of the call's limit.

        A body that is not in place counts as if it were, where the call could take it.
        """
        size = self._prepared(message).size
        if message.offloaded is not None and not message.message.body:
            # base64 takes four bytes for three; it is the most that the envelope may take
            whole = size + message.size * 4 // 3
            return min(whole, self.limits.bytes) if message.size <= self.limits.bytes else size
        return size

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        """Send the messages in one call, in several where they exceed its limits."""
        deadline = time.monotonic() + timeout
        outcomes: list[Outcome | None] = [None] * len(messages)
        prepared = [self._prepared(message) for message in messages]
        # planning has asked for the same entries; from here on they would only take memory
        self._forget()
        for number, one in enumerate(prepared):
            # one entry that is too large would refuse the whole call
            if one.size > self.alone:
                outcomes[number] = too_large(one.size, self.alone)

        waiting = [number for number, outcome in enumerate(outcomes) if outcome is None]
        for numbers in chunks(
            waiting,
            lambda number: prepared[number].size,
            items_most=self.limits.messages,
            bytes_most=self.limits.bytes,
        ):
            results = self._results([prepared[n].entry for n in numbers], deadline)
            for number, result in zip(numbers, results, strict=True):
                outcomes[number] = result

        return [outcome or refused("the destination did not answer for it") for outcome in outcomes]

    def _results(self, entries: list[dict[str, Any]], deadline: float) -> list[Outcome]:
        # throttled: not tried, so no attempt counts
        if time.monotonic() >= deadline:
            return [throttled("no time was left for the call")] * len(entries)
        try:
            return self.call(entries)
        except (ClientError, BotoCoreError) as error:
            # the call may have been carried out: then its messages arrive twice
            return [of_error(error)] * len(entries)

    def _prepared(self, stored: StoredMessage) -> Prepared:
        key = str(stored.ref)
        known = self._memo.get(key)
        # a message that was edited has the same ref, and is another object
        if known is not None and known[0] is stored:
            return known[1]
        prepared = self.prepare(stored)
        if len(self._memo) >= _MEMO_ENTRIES or self._memo_bytes + prepared.size > _MEMO_BYTES:
            self._forget()
        self._memo[key] = (stored, prepared)
        self._memo_bytes += prepared.size
        return prepared

    def _forget(self) -> None:
        self._memo.clear()
        self._memo_bytes = 0
