"""Item versions: the version that an item asks of its reader, and those this release reads.

An item without the attribute is of version 1. The number is the least version that a reader must
know, not the writer's release: an attribute that readers may leave alone does not raise it. So
nothing is written while all items are of version 1, and an upgrade costs no write unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.errors import Unreadable
from fairbox.model.versions import check_number
from fairbox.tables.keys import NEEDS, key_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_version(item: Mapping[str, Any], name: str = NEEDS) -> None:
    """Return where this release can read an item.

    Args:
        item: an item or a stream image.
        name: the attribute that names the version it asks for.

    Raises:
        NewerVersion: a newer release wrote it for readers that know more; it is to stay there.
        Unreadable: the attribute holds no version.
    """
    value = item.get(name)
    if value is None:
        return
    try:
        found = int(value["N"])
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:
        raise Unreadable(key_text(item), f"no version: {type(error).__name__}") from error
    check_number(found, key_text(item))


def unknown_of(item: Mapping[str, Any], known: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    """Return the attributes that this release does not know, by name: a rewrite keeps them."""
    if item.keys() <= known:
        return ()
    return tuple(sorted((n, v) for n, v in item.items() if n not in known))
