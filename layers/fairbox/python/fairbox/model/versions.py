"""Versions: of the codec, which stored items and queue messages name, and of the release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.errors import NewerVersion, Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

CODEC_VERSION: Final = 1
"""The greatest version that this release reads; it reads all below too."""
PLAUSIBLE: Final = 99
"""The greatest plausible version; a greater number is damage, not a release."""
VERSION_KEY: Final = "version"
"""The key under which a queue message names the version that its reader must know; absent: 1."""
VERSION_OUTPUT: Final = "Version"
"""The output of a deployed stack that names the release which it runs."""


def check_number(found: int, key: Mapping[str, str]) -> None:
    """Return where this release knows a version.

    Args:
        found: the version that an item, a value packed in it, or a queue message asks for.
        key: of the item, for the error; empty for a queue message.

    Raises:
        NewerVersion: a newer release wrote it for readers that know more; it is to stay there.
        Unreadable: it is no version.
    """
    if CODEC_VERSION < found <= PLAUSIBLE:
        raise NewerVersion(key, found, CODEC_VERSION)
    if not 1 <= found <= CODEC_VERSION:
        raise Unreadable(key, f"{found} is no codec version")
