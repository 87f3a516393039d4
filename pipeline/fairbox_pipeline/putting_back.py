"""Return of planned messages to the outbox: in steps, at a bounded rate.

A step is one transaction of the library's `Outbox.replay`: its messages and the replay's cursor. So
a replay continues after its last step, whatever was killed, and no message is put back twice.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.client.replay import MAX_REPLAYED
from fairbox.errors import InvalidInput, Unavailable
from fairbox.model.messages import Message, MessageRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox.client.outbox import Outbox
    from fairbox.consumer.turnstile import RateLimit
    from fairbox.model.clock import Clock

OF: Final = "ce-fairboxreplayof"
"""Header, and CloudEvents attribute: the ref of the message that this one repeats."""
BY: Final = "ce-fairboxreplay"
"""Header, and CloudEvents attribute: the id of the replay."""
MAX_STEP_BYTES: Final = 3_000_000


Step = dict[int, tuple[Message, Mapping[str, Any]]]
"""The messages of one transaction and their rows, by position: the last is the new cursor."""


@dataclass(slots=True)
class Replay:
    """A replay, which continues after its cursor.

    Attributes:
        name: its id.
        outbox: receives the messages.
        rate: of messages a second.
        clock: tells when a step may begin.
    """

    name: str
    outbox: Outbox
    rate: RateLimit
    clock: Clock
    counts: Counter[str] = field(default_factory=Counter)

    def put_back(self, rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
        """Put back the rows of the plan in order; return the result.

        Raises:
            FairboxError: the outbox refused a step; earlier steps are written.
        """
        cursor = f"{self.name}#0"
        position = self.outbox.replay_position(cursor)
        for step in self._steps(rows, position):
            position = self._take(step, cursor, position)
        return +self.counts

    def _take(self, step: Step, cursor: str, position: int) -> int:
        """Put back the part of a step after the cursor; return the new cursor."""
        left = self._still_true(self._behind(step, position))
        while left:
            self._wait_for(len(left))
            messages = [message for message, _ in left.values()]
            done = self.outbox.replay(messages, cursor=cursor, position=position, to=max(left))
            self.counts["added"] += len(done.added)
            self.counts["outstanding"] += len(done.outstanding)
            position = done.position
            if done.added or done.outstanding:
                break
            # another run of this replay was here: go on where it came to
            left = self._behind(left, position)
        return position

    def _wait_for(self, count: int) -> None:
        """Wait until earlier messages are paid for."""
        if pause := self.rate.pause:
            self.clock.sleep(pause)
        for _ in range(count):
            self.rate.begin()

    def _behind(self, step: Step, position: int) -> Step:
        """Return the part after a position; count the other as done."""
        left = {at: one for at, one in step.items() if at > position}
        self.counts["done_before"] += len(step) - len(left)
        return left

    def _still_true(self, step: Step) -> Step:
        """Leave out messages whose finding is no longer true: the outbox says so.

        What was lost is there again, or what was stuck has left.
        """
        asked = {at: row for at, (_, row) in step.items() if row["finding"] is not None}
        if not asked:
            return step
        refs = {at: _original(row) for at, row in asked.items()}
        held = self.outbox.outstanding_among(list(refs.values()))
        gone = {at for at in asked if (asked[at]["finding"] == "lost") == (refs[at] in held)}
        self.counts["left_out"] += len(gone)
        return {at: one for at, one in step.items() if at not in gone}

    def _steps(self, rows: Iterable[Mapping[str, Any]], position: int) -> Iterator[Step]:
        """Pack rows after the cursor; a key of an ordered topic has one message per step.

        Readers may see a transaction's items one by one, so order needs a commit between them.
        """
        step: Step = {}
        keys: set[tuple[str, str]] = set()
        size = 0
        for row in rows:
            if row["position"] <= position:
                self.counts["done_before"] += 1
                continue
            message = self._message(row)
            if message is None:
                continue
            key = (message.topic, message.shard_key)
            ordered = row["ordering"] == "key"
            weight = len(message.body) + 2048
            full = len(step) == MAX_REPLAYED or size + weight > MAX_STEP_BYTES
            if step and (full or (ordered and key in keys)):
                yield step
                step, keys, size = {}, set(), 0
            step[row["position"]] = message, row
            keys.add(key)
            size += weight
        if step:
            yield step

    def _message(self, row: Mapping[str, Any]) -> Message | None:
        try:
            body = self._body(row)
            if body is None:
                self.counts["without_body"] += 1
                return None
            ref = replace(_original(row), due=None)
            headers = dict(row["headers"] or {}) | {OF: str(ref), BY: self.name}
            return Message(
                topic=row["topic"],
                body=body,
                partition_key=row["partition_key"],
                content_type=row["content_type"] or "application/octet-stream",
                headers=headers,
                id=row["new_id"],
            )
        except (InvalidInput, ValueError):
            # its headers were at their limit, or the archive has another's line
            self.counts["refused"] += 1
            return None

    def _body(self, row: Mapping[str, Any]) -> bytes | None:
        text, uri = row["body"], row["body_uri"]
        if text is not None:
            packed = row["body_encoding"] == "base64"
            return base64.b64decode(text, validate=True) if packed else text.encode()
        if uri is None or self.outbox.bodies is None:
            return None
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        try:
            return self.outbox.bodies.get(bucket, key)
        except Unavailable as error:
            if "NoSuchKey" in error.detail:  # it was kept for its time
                return None
            raise


def _original(row: Mapping[str, Any]) -> MessageRef:
    return MessageRef(row["topic"], row["epoch"], row["shard"], row["id"], row["due"])
