"""Dead letters for tests: messages that die, with batch items or without, and calls that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.dispatch.ports import TAKEN
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import BATCHES

from tests.support.application import POISONED, App

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox import MessageRef
    from fairbox.tables.stored_messages import StoredMessage


def opened(app: App, count: int = 1) -> tuple[str, list[str]]:
    """Open and seal a batch of some items; return its id and theirs."""
    batch = app.batches.open().id
    (group,) = app.batches.add(batch, count, request_id="r")
    app.batches.seal(batch)
    return batch, list(group.item_ids())


def lying(app: App) -> list[StoredMessage]:
    """Return what lies in the outbox but for the batches' own messages."""
    found = map(read_message, app.lying())
    return [stored for stored in found if stored.ref.topic == "orders"]


class Between:
    """A client that does something before, or after, each transaction that moves an item."""

    def __init__(
        self,
        client: Any,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._before = before
        self._after = after
        self.moves: list[dict[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def transact_write_items(self, **request: Any) -> Any:
        tables = [next(iter(a.values()))["TableName"] for a in request["TransactItems"]]
        if BATCHES not in tables:
            return self._client.transact_write_items(**request)
        self.moves.append({t: tables.count(t) for t in sorted(set(tables))})
        self._before()
        answer = self._client.transact_write_items(**request)
        self._after()
        return answer


def raises(error: Exception) -> None:
    raise error


def killed(app: App, count: int = 1, seconds: float = 300, **more: Any) -> list[MessageRef]:
    """Publish messages and let them die at subscription `a`, which takes everything then."""
    app.at("a").answer = lambda _: POISONED
    refs = app.add(count, **more)
    app.run(seconds)
    app.at("a").answer = lambda _: TAKEN
    app.at("a").received.clear()
    return refs


def ids(refs: Any) -> list[str]:
    return [ref.id for ref in refs]
