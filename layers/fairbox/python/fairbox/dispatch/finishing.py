"""Marked messages: whoever meets one finishes what somebody else began."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.ports import Store
    from fairbox.stored import StoredMessage


def finish_marked(store: Store, messages: Sequence[StoredMessage]) -> int:
    """Bury the dead among messages that carry `gone`, delete all; return how many there were."""
    for stored in messages:
        died = frozenset(name for name, state in stored.states.items() if state.dead)
        if stored.gone == "dead" and died:
            store.bury(stored, died)
    if messages:
        store.delete(messages)
    return len(messages)
