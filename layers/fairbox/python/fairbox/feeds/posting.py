"""Posting: frames to the clients of a visit, in cycles, as fast as the account may post."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.parallel import in_threads
from fairbox.errors import Unavailable
from fairbox.model.clock import NO_TIME

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from fairbox.aws.feed_sockets import FeedSockets, Posted
    from fairbox.dispatch.parallel import Run
    from fairbox.model.clock import Clock

POSTS: Final = 64
"""In flight: of 250 clients, 25 that do not answer keep no others waiting."""
TICK_SECONDS: Final = 0.1
"""From the begin of a cycle to the next: a shard of few clients does not run ahead of others."""
RETRY_SECONDS: Final = 0.2
"""From the begin of a cycle in which posts failed to the next, with their second and last try."""


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
