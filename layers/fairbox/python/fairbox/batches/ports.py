"""Ports of batches: announcements, and ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fairbox.tables.batch_values import (
        Announcement,
        Root,
    )


class Announcer(Protocol):
    """Makes messages part of a transaction."""

    def actions(self, announcement: Announcement) -> list[dict[str, Any]]:
        """Return the actions that publish the message; its topic is made where it is missing."""
        ...

    def expire(self, root: Root) -> None:
        """Mark the message of a complete batch as expired where its topic has no subscription."""
        ...


class Ids(Protocol):
    """Makes UUIDv7 texts."""

    def next(self) -> str:
        """Return the next one."""
        ...
