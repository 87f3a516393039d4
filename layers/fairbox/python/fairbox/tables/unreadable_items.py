"""Items that the codec did not write: the errors of their readers, translated."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import FairboxError, Unreadable
from fairbox.tables.keys import key_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOT_OURS: Final = (
    FairboxError, LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""The errors of a reader that meets an item which the codec did not write."""


@contextmanager
def reading(item: Mapping[str, Any], *errors: type[Exception]) -> Iterator[None]:
    """Translate these errors of a block that reads an item into `Unreadable`."""
    try:
        yield
    except errors as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
