"""Hypothesis strategies: messages with their state, ledger deliveries, shard rows, topics."""

from __future__ import annotations

import uuid
from dataclasses import replace

from fairbox import Delivery, Message, MessageRef, RetryPolicy, Subscription, Topic
from fairbox.model.epochs import Epoch
from fairbox.model.messages import check_text
from fairbox.model.topic_states import TopicState
from fairbox.model.topics import Ordering, Partition
from fairbox.tables.deferred_keys import NAME_BYTES, DeferredKey
from fairbox.tables.shard_rows import ShardRow
from fairbox.tables.stored_messages import KEY_BYTES, Failure, StoredMessage, SubscriptionState
from hypothesis import strategies as st

LATEST = 253_402_300_799_000


def _clean(text: str) -> bool:
    try:
        check_text("x", text)
    except ValueError:
        return False
    return True


names = st.from_regex(r"\A[a-z][a-z0-9._-]{0,8}\Z").filter(lambda n: n != "pull")
keys = st.none() | st.text(max_size=20).filter(_clean)
items = st.none() | st.builds(
    "{}:{}:{}".format, st.uuids(), st.integers(0, 999_999_999), st.integers(0, 7167)
)
errors = st.text(st.characters(codec="utf-8"), max_size=20)
times = st.integers(0, LATEST)
weights = st.just(1.0) | st.floats(0.01, 100)


@st.composite
def ids(draw: st.DrawFn) -> str:
    ms, rest = draw(times), draw(st.integers(0, (1 << 74) - 1))
    high, low = rest >> 62, rest & ((1 << 62) - 1)
    return str(uuid.UUID(int=(ms << 80) | (7 << 76) | (high << 64) | (2 << 62) | low))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    return Message(
        topic=draw(names),
        body=draw(
            st.binary(max_size=40) | st.binary(min_size=1, max_size=3).map(lambda b: b * 600)
        ),
        partition_key=draw(keys),
        content_type=draw(st.sampled_from(["application/json", "text/plain; charset=utf-8"])),
        headers=draw(
            st.dictionaries(st.from_regex(r"\A[a-z-]{1,9}\Z"), keys.map(lambda k: k or ""))
        ),
        delay=draw(st.just(0) | st.floats(0, 366 * 86400)),
        dedup_key=draw(keys),
        fairness_key=draw(keys),
        batch_item=draw(items),
        direct=draw(st.booleans()),
        id=draw(ids()),
    )


states = st.builds(
    SubscriptionState,
    attempts=st.integers(0, 1000),
    due=times,
    history=st.lists(st.builds(Failure, st.integers(1, 1000), times, errors), max_size=3).map(
        tuple
    ),
    dead=st.booleans(),
)


@st.composite
def stored(draw: st.DrawFn) -> StoredMessage:
    """A message as it may lie in the outbox, with any state."""
    message = draw(messages())
    ref = MessageRef(
        message.topic,
        draw(st.integers(0, 99)),
        draw(st.integers(0, 999)),
        message.id,
        message.due,
    )
    plain = StoredMessage(message, ref, "ready" if ref.due is None else "later", len(message.body))
    return replace(
        plain,
        pending=draw(st.none() | st.frozensets(names, min_size=1, max_size=3)),
        states=draw(st.dictionaries(names, states, max_size=2)),
        gone=draw(st.sampled_from([None, "dead", "cancelled", "purged", "expired", "moved"])),
        reason=draw(errors),
    )


@st.composite
def deliveries(draw: st.DrawFn) -> list[Delivery]:
    """Deliveries of one ledger row."""
    first = draw(st.integers(0, LATEST - 400_000))
    small = st.integers(0, 10**6)
    one = st.builds(
        Delivery,
        names,
        small,
        small,
        ids(),
        names,
        st.integers(first, first + 300_000),
        small,
        small,
    )
    return sorted(draw(st.lists(one, min_size=1, max_size=30)), key=lambda d: d.at)


holds = st.builds(
    DeferredKey,
    st.binary(min_size=NAME_BYTES, max_size=NAME_BYTES),
    st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES),
    ids(),
    times,
    st.sampled_from(["waiting", "open", "blocked"]),
)


counts = st.integers(-(10**9), 10**9)
sequences = st.just("") | st.integers(1, 10**38).map(str)
rows = st.builds(
    ShardRow,
    names,
    st.integers(0, 99),
    st.integers(0, 999),
    ready=counts,
    later=counts,
    ready_deaths=counts,
    later_deaths=counts,
    ready_sequence=sequences,
    later_sequence=sequences,
    next_check=st.none() | times,
    backoff=st.integers(0, 600),
    purged_dead=st.integers(0, 10**6),
)


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    count = draw(st.integers(1, 1000))
    return Partition(draw(names), draw(st.integers(0, count - 1)), count)


@st.composite
def topics(draw: st.DrawFn) -> TopicState:
    name = draw(names)
    shards = draw(st.integers(1, 1000))
    base = draw(st.floats(0.001, 900))
    ordering: Ordering = draw(st.sampled_from(["none", "key"]))
    topic = Topic(
        name,
        shards=shards,
        ordering=ordering,
        on_dead=draw(st.sampled_from(["skip", "block"])) if ordering == "key" else "skip",
        retry=RetryPolicy(
            max_attempts=draw(st.integers(1, 1000)), base=base, cap=draw(st.floats(base, 43_200))
        ),
        dedup_window=draw(st.none() | st.integers(1, 86_400)),
        retention=draw(st.integers(3600, 86_400)),
        partition=draw(st.none() | partitions()),
        weight=draw(weights),
        mini_batch=draw(st.integers(1, 100)),
        tenant_weights=draw(st.dictionaries(names, weights, max_size=3)),
        message_retention=draw(st.none() | st.integers(60, 86_400)),
        max_outstanding=draw(st.none() | st.integers(1, 1_000_000_000)),
    )
    subscriptions = tuple(
        Subscription(
            name,
            n,
            f"sqs:http://q/{n}",
            draw(st.none() | st.integers(1, 9)),
            draw(st.floats(1, 14)),
            weight=draw(st.none() | weights),
        )
        for n in sorted(draw(st.sets(names, max_size=3)))
    )
    epochs = (Epoch(0, 4, 0), Epoch(1, shards, 9))
    widths = (Epoch(0, 2, 0), Epoch(1, draw(st.integers(1, 1000)), 9)) * draw(st.booleans())
    deleting = draw(st.none() | times)
    return TopicState(
        topic, epochs, subscriptions, draw(times), draw(st.booleans()), deleting, widths=widths
    )
