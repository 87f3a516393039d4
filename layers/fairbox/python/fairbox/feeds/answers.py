"""Answers to clients of feeds, and frames pushed to them, as JSON text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.model.feed_types import Kind

Code = Literal["bad_request", "not_allowed", "unknown_feed", "too_many_topics", "reconnect"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Says that one topic of a request is no good; `topic` None: that the whole request is none."""

    topic: str | None
    code: Code
    text: str


@dataclass(slots=True)
class Entry:
    """The part of an answer about one topic: the messages behind a position.

    Attributes:
        topic: `feed/key`.
        after: the position that it follows.
        upto: the position behind it; a number in between that has no message is lost.
        messages: texts by number.
        note: `more` is there; or it begins anew (`reset`), for the position was none of the topic.
    """

    topic: str
    after: int
    upto: int
    messages: list[tuple[int, str]] = field(default_factory=list)
    note: Literal["", "more", "reset"] = ""

    def __str__(self) -> str:
        """Return its JSON."""
        messages = ",".join(f"[{number},{text}]" for number, text in self.messages)
        note = f',"{self.note}"' if self.note else ""
        return f"[{_json(self.topic)},{self.after},{self.upto},[{messages}]{note}]"


def answer(
    request: int | None,
    entries: Sequence[Entry] = (),
    kinds: Mapping[str, Kind] | None = None,
    refused: Sequence[Refusal] = (),
) -> str:
    """Return the JSON of an answer; `request` is the id of the request, None: it had none."""
    parts = [f'"a":{_json(request)}', f'"t":[{",".join(map(str, entries))}]']
    if kinds:
        parts.append(f'"kinds":{_json(kinds)}')
    if refused:
        # escaped, for what was asked may be no text that UTF-8 has
        errors = json.dumps([[one.topic, one.code, one.text] for one in refused])
        parts.append(f'"err":{errors}')
    return f"{{{','.join(parts)}}}"


def frame(entries: Sequence[bytes]) -> bytes:
    """Return the JSON of a frame that is pushed: entries, and no request that they answer."""
    return b'{"t":[%s]}' % b",".join(entries)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
