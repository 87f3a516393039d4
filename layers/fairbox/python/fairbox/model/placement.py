"""Placement: where a message belongs by its topic's epochs, its id and its key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairbox.model.epochs import ended
from fairbox.model.ids import time_of
from fairbox.model.sharding import shard_number

if TYPE_CHECKING:
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import TopicState


def belongs(stored: StoredMessage, state: TopicState) -> MessageRef | None:
    """Return where a message belongs; None: it lies there, or where it was put rightly once.

    It is misplaced where its topic does not list its epoch (so nobody reads there), where its
    shard is not its key's, and where its id is of another epoch's time: that of a producer whose
    clock or view was wrong. What was added late to an epoch that is closed by now lies rightly.
    """
    ref = stored.ref
    here, ms = state.epoch(ref.epoch), time_of(ref.id)
    wanted = state.epoch_at(ms)
    if here is not None and here.closed:
        end = ended(state.epochs, here)
        wanted = here if end is None or ms < end else wanted
    right = replace(
        ref, epoch=wanted.number, shard=shard_number(stored.message.shard_key, wanted.shards)
    )
    return None if right == ref else right
