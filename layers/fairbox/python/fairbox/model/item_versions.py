"""The codec version: what stored items and queue messages may ask of their reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.errors import NewerVersion, Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

CODEC_VERSION: Final = 1
"""The greatest that this release reads; it reads all below too."""
PLAUSIBLE: Final = 99
"""A greater number is damage, not a release: nobody will ever be able to read it."""
VERSION_KEY: Final = "version"
"""Under which a queue message says what it asks of its reader; absent: 1."""


def check_number(found: int, key: Mapping[str, str]) -> None:
    """Return where this release knows a version.

    Args:
        found: what an item, what is packed in it, or a queue message asks for.
        key: of the item, for the error; empty for a queue message.

    Raises:
        NewerVersion: a newer release wrote it for readers that know more; it is to stay there.
        Unreadable: it is no version.
    """
    if CODEC_VERSION < found <= PLAUSIBLE:
        raise NewerVersion(key, found, CODEC_VERSION)
    if not 1 <= found <= CODEC_VERSION:
        raise Unreadable(key, f"{found} is no codec version")
