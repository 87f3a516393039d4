"""Frames: the news of a visit for a client, in cycles that no topic fills alone, and posts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.fair import Pending, Work
from fairbox.dispatch.parallel import Run, in_threads
from fairbox.dispatch.ports import Limits
from fairbox.errors import Unavailable
from fairbox.feeds.asking import ANSWER_BYTES, Entry, frame
from fairbox.feeds.feed_messages import BUNDLE_BYTES, sent_bytes
from fairbox.model.clock import NO_TIME, Clock
from fairbox.model.feed_types import BUNDLE_MESSAGES

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Mapping

    from fairbox.aws.feed_sockets import FeedSockets, Posted
    from fairbox.tables.feed_topics import Bundle

_WEIGHT: Final = 1e6
"""So large a weight that the turns of topics count, and not their bytes."""
_ANY_NUMBER: Final = 1_000_000
"""Of slices in a frame: its bytes are the limit."""
POSTS: Final = 64
"""In flight: of 250 clients, 25 that do not answer keep no others waiting."""
TICK_SECONDS: Final = 0.1
"""From the begin of a cycle to the next: a shard of few clients does not run ahead of others."""
RETRY_SECONDS: Final = 0.2
"""From the begin of a cycle in which posts failed to the next, with their second and last try."""


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


@dataclass(slots=True)
class Sent:
    """The result of posting.

    Attributes:
        frames: number of frames that clients took.
        failed: clients that did not take a frame.
        gone: clients whose socket no longer exists.
    """

    frames: int = 0
    failed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


class Posting:
    """Posts frames to clients: each that is there and takes them gets one a cycle.

    Args:
        clock, rng: time; the order of clients in a cycle.
        rate: posts a second.
        run: makes up to `POSTS` posts at a time.
    """

    def __init__(
        self,
        sockets: FeedSockets,
        clock: Clock,
        rng: random.Random,
        rate: float,
        run: Run = lambda calls: in_threads(calls, POSTS),
    ) -> None:
        self.sockets = sockets
        self._clock = clock
        self._rng = rng
        self._rate = rate
        self._run = run

    def send(self, frames: Mapping[str, Iterable[bytes]], deadline: float) -> Sent:
        """Send each client its frames in order, up to one that it does not take.

        Raises:
            Unavailable: not all were posted before the deadline; or none may be.
        """
        sent = Sent()
        waiting = {id_: deque(its) for id_, its in frames.items()}
        tried: set[str] = set()  # clients whose first frame has failed once

        while waiting:
            began = self._clock.now()
            for id_, posted in self._cycle(waiting, began, deadline).items():
                again = posted == "failed" and id_ not in tried
                tried.discard(id_)
                if again:
                    tried.add(id_)
                elif posted == "taken":
                    sent.frames += 1
                    waiting[id_].popleft()
                else:
                    (sent.failed if posted == "failed" else sent.gone).append(id_)
                    # the frames behind one that it lacks would not follow its position
                    waiting[id_].clear()

            waiting = {id_: its for id_, its in waiting.items() if its}
            if waiting:
                self._wait(began + (RETRY_SECONDS if tried else TICK_SECONDS))
        return sent

    def _cycle(
        self, waiting: Mapping[str, deque[bytes]], began: float, deadline: float
    ) -> dict[str, Posted]:
        """Post the first frame of each client."""
        # in another order each time, so that nobody is always the last one
        clients = self._rng.sample(list(waiting), len(waiting))
        posted: dict[str, Posted] = {}

        def post(place: int, id_: str) -> None:
            # evenly: the quota of API Gateway is for each second
            turn = began + place / self._rate
            if turn < deadline:
                self._wait(turn)
            if turn >= deadline or self._clock.now() >= deadline:
                raise Unavailable("post_to_connection", NO_TIME)
            posted[id_] = self.sockets.post(id_, waiting[id_][0])

        self._run([partial(post, place, id_) for place, id_ in enumerate(clients)])
        return posted

    def _wait(self, until: float) -> None:
        seconds = until - self._clock.now()
        if seconds > 0:
            self._clock.sleep(seconds)


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
