"""A check of the order of first deliveries by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


class KeyOrder:
    """The greatest id delivered so far, by key; ids of a key must rise."""

    def __init__(self) -> None:
        self._greatest: dict[Hashable, tuple[str, str]] = {}

    def overtaken(self, key: Hashable, id_: str, name: str = "") -> str | None:
        """Take the next first delivery of a key.

        Returns:
            The name of the delivery with a greater id that came before it, or None.
        """
        greatest = self._greatest.get(key, ("", ""))
        self._greatest[key] = max(greatest, (id_, name))
        return greatest[1] if id_ < greatest[0] else None
