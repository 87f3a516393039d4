"""Marked messages: whoever meets one finishes what somebody else began."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fairbox.errors import FairboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.ports import Store
    from fairbox.stored import StoredMessage

logger = logging.getLogger("fairbox")


def finish_marked(store: Store, messages: Sequence[StoredMessage], errors: list[str]) -> int:
    """Bury the dead among messages that carry `gone`, delete the others.

    A message that cannot be finished now, such as one whose batch item's group is busy, stays
    marked for whoever meets it next, and stops no other.

    Args:
        store: the tables.
        messages: all marked.
        errors: what went wrong is added.

    Returns:
        How many were finished.
    """
    finished = 0
    for stored in messages:
        died = frozenset(name for name, state in stored.states.items() if state.dead)
        try:
            if stored.gone == "dead" and died:
                store.finish(stored, died)
            else:
                store.delete_marked(stored)
        except FairboxError as error:
            logger.warning(
                "a marked message could not be finished",
                extra={"ref": str(stored.ref), "error": str(error)},
            )
            errors.append(str(error))
        else:
            finished += 1
    return finished
