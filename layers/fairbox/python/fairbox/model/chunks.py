"""Chunks: as much of a sequence as one call takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


def chunks(
    items: Iterable[T], size: Callable[[T], int], *, items_most: int, bytes_most: int
) -> Iterator[list[T]]:
    """Yield items in order, as many together as both limits allow; a larger item is alone."""
    chunk: list[T] = []
    used = 0
    for item in items:
        more = size(item)
        if chunk and (len(chunk) >= items_most or used + more > bytes_most):
            yield chunk
            chunk, used = [], 0
        chunk.append(item)
        used += more

    if chunk:
        yield chunk
