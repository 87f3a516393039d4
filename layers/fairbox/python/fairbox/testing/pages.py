"""A paginator over query and scan of any client, the wrapped ones included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAGED: Final = frozenset({"query", "scan"})


def paginator(client: Any, operation: str) -> Paginator:
    """A paginator over an operation of `client`; ValueError where it has no pages."""
    if operation not in _PAGED:
        raise ValueError(f"no paginator for {operation}: only query and scan have one")
    return Paginator(getattr(client, operation))


class Paginator:
    """Follows LastEvaluatedKey from page to page."""

    def __init__(self, read: Callable[..., dict[str, Any]]) -> None:
        self._read = read

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages; of ``PaginationConfig`` only ``PageSize`` is understood."""
        config = request.pop("PaginationConfig", {})
        if config.keys() - {"PageSize"}:
            raise ValueError(f"PaginationConfig: only PageSize is understood, got {config}")
        if "PageSize" in config:
            request["Limit"] = config["PageSize"]
        while True:
            page = self._read(**request)
            yield page
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
