"""Answers of the functions that an inbox calls: nothing counts as done that did not run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, Retry
from fairbox.inbox import Event, Inbox

from tests.support import lambda_events
from tests.support.destination_examples import FixedClock, stored

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED = {"batchItemFailures": [{"itemIdentifier": "record-0"}]}
DONE: dict[str, Any] = {"batchItemFailures": []}


def handle(process: Callable[[Event], object]) -> dict[str, Any]:
    return Inbox("Inbox", "orders/billing", clock=FixedClock()).handle(
        lambda_events.sqs([stored(b"1")]), process
    )


def test_a_coroutine_is_awaited_and_its_error_fails_the_record() -> None:
    seen: list[bytes] = []

    async def process(event: Event) -> None:
        await asyncio.sleep(0)
        seen.append(event.body())
        if len(seen) > 1:
            raise ValueError("no such customer")

    assert handle(process) == DONE
    assert seen == [b"1"]
    assert handle(process) == FAILED


def test_coroutines_of_an_inbox_run_on_one_loop_also_inside_another() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    inbox = Inbox("Inbox", "orders/billing", clock=FixedClock())

    async def process(_: Event) -> None:
        loops.append(asyncio.get_running_loop())

    async def function() -> dict[str, Any]:
        return inbox.handle(lambda_events.sqs([stored(b"1"), stored(b"2")]), process)

    assert asyncio.run(function()) == DONE
    assert inbox.handle(lambda_events.sqs([stored(b"3")]), process) == DONE
    assert len(loops) == 3
    assert len(set(loops)) == 1


@pytest.mark.parametrize("answer", [True, {"statusCode": 200}, Retry, Retry(5), (_ for _ in ())])
def test_any_answer_but_none_fails_the_record(answer: object) -> None:
    assert handle(lambda _: answer) == FAILED


def test_a_coroutine_that_nobody_awaited_fails_the_record() -> None:
    async def inner() -> None: ...

    async def process(_: Event) -> object:
        return inner()

    assert handle(process) == FAILED


def test_the_error_names_what_came_back(caplog: pytest.LogCaptureFixture) -> None:
    handle(lambda _: Retry)
    assert "process: expected None as its answer, not the class Retry" in caplog.text


def test_a_generator_function_is_refused_before_anything_is_processed() -> None:
    def process(event: Event) -> Any:
        yield event

    for wrong in (process, "process"):
        with pytest.raises(InvalidInput, match="process: expected a function"):
            handle(wrong)  # type: ignore[arg-type]
