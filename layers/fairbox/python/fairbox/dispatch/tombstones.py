"""Marked messages: any reader of a marked message finishes its removal."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from fairbox.dispatch.burials import Burials
from fairbox.errors import FairboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

logger = logging.getLogger("fairbox")


def finish_marked(
    tables: Tables, messages: Sequence[StoredMessage], errors: list[str] | None = None
) -> int:
    """Bury the dead among messages that carry `gone`, delete the others.

    A message that cannot be finished now, such as one whose batch item's group is busy, stays
    marked for its next reader, and stops no other.

    Args:
        tables: the tables.
        messages: all marked.
        errors: the errors are added here; None: they are only logged.

    Returns:
        The number of messages finished.
    """
    finished = 0
    for stored in messages:
        died = frozenset(name for name, state in stored.states.items() if state.dead)
        try:
            if stored.gone == "dead" and died:
                # in one transaction: another process may be at this move, or a redrive behind it
                Burials(tables).finish(stored, died)
            else:
                tables.lanes.delete_marked(stored)
        except FairboxError as error:
            logger.warning(
                "a marked message could not be finished",
                extra={"ref": str(stored.ref), "error": str(error)},
            )
            if errors is not None:
                errors.append(str(error))
        else:
            finished += 1

    return finished


def bury_marked(tables: Tables, stored: StoredMessage) -> None:
    """Bury a message that the caller has just marked as dead.

    If that fails it stays marked, and so dead, for its next reader.
    """
    died = frozenset(name for name, state in stored.states.items() if state.dead)
    with suppress(FairboxError):
        Burials(tables).bury(stored, died)
