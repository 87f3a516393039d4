"""Frames: the news of a visit for a client, in cycles that no topic fills alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.fair import Pending, Work
from fairbox.dispatch.ports import Limits
from fairbox.feeds.answers import Entry, frame
from fairbox.feeds.asking import ANSWER_BYTES
from fairbox.feeds.feed_messages import BUNDLE_BYTES, sent_bytes
from fairbox.model.feed_types import BUNDLE_MESSAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox.tables.feed_topics import Bundle

_WEIGHT: Final = 1e6
"""So large a weight that the turns of topics count, and not their bytes."""
_ANY_NUMBER: Final = 1_000_000
"""Of slices in a frame: its bytes are the limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """The part of a topic that its clients get in one cycle.

    Attributes:
        topic: `feed/key`.
        private: whether the topic is.
        entry: its JSON.
    """

    topic: str
    private: bool
    entry: bytes


def slices_of(topic: str, bundles: Iterable[Bundle], *, private: bool) -> Iterator[Slice]:
    """Yield bundles of a topic as slices; consecutive ones share a slice, up to a bundle's size.

    Args:
        topic: `feed/key`.
        bundles: in order, at least one.
        private: whether the topic is.
    """
    for one in _joined(iter(bundles)):
        messages = list(enumerate(one.messages, one.first))
        entry = Entry(topic, one.first - 1, one.last, messages)
        yield Slice(topic, private, str(entry).encode())


def _joined(bundles: Iterator[Bundle]) -> Iterator[Bundle]:
    whole = next(bundles)
    for bundle in bundles:
        messages = whole.messages + bundle.messages
        fits = len(messages) <= BUNDLE_MESSAGES and sum(map(sent_bytes, messages)) <= BUNDLE_BYTES
        # across a gap they stay apart: clients take an entry only if it follows their position
        if fits and bundle.first == whole.last + 1:
            whole = replace(whole, last=bundle.last, messages=messages)
        else:
            yield whole
            whole = bundle
    yield whole


def frames_of(slices: Iterable[Slice]) -> list[bytes]:
    """Return the frames that bring a client its slices: one a cycle, each metered as one.

    Private topics go first, in at most half of a frame while others wait. Each other topic gives
    one slice; slices without room begin the next frame. A slice that is larger than a frame has a
    frame of its own.

    Args:
        slices: each topic's in order.
    """
    pending: Pending[bytes] = Pending()
    for one in slices:
        size = len(one.entry) + 1  # with a comma
        pending.add(Work(one.entry, one.topic, size, weight=_WEIGHT, direct=one.private))

    limits = Limits(_ANY_NUMBER, ANSWER_BYTES - len(frame(())))
    frames: list[bytes] = []
    while len(pending):
        frames.append(frame(pending.next_call(limits, fill=False)))
    return frames
