"""Calls of which others let only a part be done: the error says what was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import BatchBusy, BatchEnded
from fairbox.problems import refusal_of
from fairbox.testing.application import MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable


class Overtaken:
    """A client before each of whose writes another process does something."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.by: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(**request: Any) -> Any:
            by, self.by = self.by, None
            if by is not None and name.endswith(("put_item", "update_item", "write_items")):
                by()
            self.by = by
            return method(**request)

        return call


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication(wrap=Overtaken)


def opened(app: MemoryApplication) -> str:
    batch = app.batches.open().id
    app.batches.add(batch, 60, request_id="r", group_size=30)
    return batch


def test_a_busy_group_tells_what_was_done_of_the_others(app: MemoryApplication) -> None:
    batch = opened(app)
    others = iter(range(10, 30))
    app.client.by = lambda: app.batches.ack([f"{batch}:1:{next(others)}"])
    with pytest.raises(BatchBusy) as caught:
        app.batches.ack([f"{batch}:0:0", f"{batch}:0:1", f"{batch}:1:0"])
    assert (caught.value.left, caught.value.changed) == ((f"{batch}:1:0",), 2)
    assert refusal_of(caught.value).problem("")["changed"] == 2


def test_a_batch_that_ends_meanwhile_tells_what_was_done_of_others(app: MemoryApplication) -> None:
    first, second = opened(app), app.batches.open().id
    app.batches.add(second, 1, request_id="r")
    app.batches.seal(second)
    cancelled = iter([first])

    def cancel() -> None:
        for batch in cancelled:
            app.batches.cancel(batch)

    app.client.by = cancel
    with pytest.raises(BatchEnded) as caught:
        app.batches.ack([f"{second}:0:0", f"{first}:0:0"])
    assert (caught.value.changed, caught.value.completed) == (1, (second,))
    assert refusal_of(caught.value).problem("")["completed"] == [second]
