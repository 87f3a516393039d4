"""Ringing: published messages go, as doorbells, to the audience shards that follow the topic."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.sqs_queues import send_all
from fairbox.dispatch.parallel import Run, in_threads
from fairbox.errors import FairboxError
from fairbox.model.chunks import chunks
from fairbox.tables.feed_topics import MESSAGES, Bundle, of_item, topic_of, topic_pk
from fairbox.tables.keys import HEAD, key
from fairbox.tables.stream_records import image_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fairbox.tables.feed_connections import FeedLeases

DOORBELL_BYTES: Final = 64 * 1024
"""Bytes of a doorbell, as SQS meters one request; a larger bundle has a doorbell of its own."""
_BUNDLES: Final = 100  # of a doorbell
_ROOM: Final = DOORBELL_BYTES - 2 * _BUNDLES  # without brackets and commas

logger = logging.getLogger("fairbox")


@dataclass(slots=True)
class News:
    """A bundle to push.

    Attributes:
        topic: `feed/key`.
        bundle: its messages; None: the newest one, which is to be read.
        to: ids of the connections that may get it, for a private topic; None: all that follow it.
    """

    topic: str
    bundle: Bundle | None
    to: list[str] | None


@dataclass(frozen=True, slots=True)
class Doorbell:
    """A doorbell, as SQS gives it.

    Attributes:
        text: news as JSON.
        rung: when, in seconds since 1970 UTC.
        tries: how often it came, this time included.
    """

    text: str
    rung: float
    tries: int = 1


def decode(doorbell: Doorbell) -> Iterator[News]:
    """Yield the news of a doorbell; unreadable news is logged and left out: clients ask for it."""
    try:
        parts = list(json.loads(doorbell.text))
    except (ValueError, TypeError, RecursionError):
        # which is logged below, as news that cannot be read
        parts = [doorbell.text]

    for part in parts:
        try:
            image, to = part
            bundle = of_item(image_item(image)) if MESSAGES in image else None
            one = News(topic_of(image), bundle, to)
        except (FairboxError, ValueError, TypeError, LookupError) as error:
            logger.warning("news of feeds cannot be read", extra={"error": str(error)})
        else:
            yield one


class Ringing:
    """Rings for the heads of topics that a stream shows.

    A doorbell carries the bundles as the stream has them, so that nothing is read again to push
    them. It is for one audience shard, whose number is its group.

    Args:
        client: boto3's client of SQS.
        queue_url: a FIFO queue.
        run: makes independent reads.
    """

    def __init__(
        self, leases: FeedLeases, client: Any, queue_url: str, run: Run = in_threads
    ) -> None:
        self._leases = leases
        self._client = client
        self._queue_url = queue_url
        self._run = run

    def ring(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Send the doorbells of stream records; return how many.

        It costs 1 RRU for each topic, and a request of SQS for each shard that follows one.

        Raises:
            Throttled, Unavailable: the records are to come again; some doorbells may be there.
        """
        images = [record["dynamodb"]["NewImage"] for record in records]

        # after the records: whoever takes a lease later reads the head later, and so finds these
        audiences: dict[str, dict[int, list[str] | None]] = {}
        topics = dict.fromkeys(map(topic_of, images))
        self._run([partial(self._read, topic, audiences) for topic in topics])

        news: dict[int, list[str]] = defaultdict(list)
        for image in images:
            for shard, to in audiences[topic_of(image)].items():
                news[shard].append(json.dumps([image, to], separators=(",", ":")))
        entries = [
            _entry(shard, part)
            for shard, texts in news.items()
            for part in chunks(texts, len, items_most=_BUNDLES, bytes_most=_ROOM)
        ]
        send_all(self._client, self._queue_url, entries)
        return len(entries)

    def ring_again(self, shard: int, topics: Iterable[str], rung: Iterable[Doorbell]) -> None:
        """Ring a shard for the newest bundle of topics, behind all that it was rung for.

        Args:
            shard: the audience shard.
            topics: that are no private ones.
            rung: the doorbells that brought them; for the same ones it rings once.
        """
        cause = hashlib.sha256("".join(one.text for one in rung).encode()).hexdigest()
        texts = [json.dumps([key(topic_pk(topic), HEAD), None]) for topic in topics]
        parts = chunks(texts, len, items_most=_BUNDLES, bytes_most=_ROOM)
        entries = [_entry(shard, part, f"{number}-{cause}") for number, part in enumerate(parts)]
        send_all(self._client, self._queue_url, entries)

    def _read(self, topic: str, audiences: dict[str, dict[int, list[str] | None]]) -> None:
        audiences[topic] = self._leases.audience(topic)


def _entry(shard: int, news: Sequence[str], cause: str = "") -> dict[str, str]:
    body = f"[{','.join(news)}]"
    return {
        "MessageBody": body,
        "MessageGroupId": str(shard),
        # records that come again are not always the same ones together
        "MessageDeduplicationId": f"{shard}-{cause or hashlib.sha256(body.encode()).hexdigest()}",
    }
