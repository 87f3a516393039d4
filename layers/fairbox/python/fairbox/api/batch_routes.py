"""The routes of batches: each translates a request, calls one use case and shapes the answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.api.batch_models import (
    MAX_ADD_GROUPS,
    MAX_EXACT_GROUPS,
    MAX_GROUPS,
    MAX_ITEMS,
    AddIn,
    Batches,
    BatchesQuery,
    BatchIn,
    BatchOut,
    FailedItemOut,
    FailedItems,
    FailsIn,
    GroupOut,
    Groups,
    ItemsIn,
    ItemsQuery,
    Missing,
    ProgressOut,
    ProgressQuery,
    Settled,
    ShownBatch,
)
from fairbox.api.cursors import pack_cursor, unpack_cursor
from fairbox.api.route import Answer, Api, Route
from fairbox.client.batch_reads import known_id
from fairbox.errors import InvalidInput, UnknownBatch
from fairbox.problems import FieldError, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from fairbox.api.request import Request
    from fairbox.batches.results import AckResult, Batch, Page

T = TypeVar("T")


def open_batch(api: Api, request: Request) -> Answer:
    """Open a batch; the same id again shows the batch that is there."""
    given = request.model(BatchIn, required=False)
    # before the call: afterwards it is there in either case
    status = 201 if given.id is None or not _is_there(api, given.id) else 200

    batch = api.batches.open(
        given.user_key,
        given.metadata,
        id=given.id,
        parent_item=given.parent_item,
        on_complete=given.on_complete,
        on_success=given.on_success,
        on_cancel=given.on_cancel,
        on_death=given.on_death,
        retry_hours=given.retry_hours,
    )

    return Answer(status, _show(batch), {"Location": f"/batches/{batch.id}"})


def list_batches(api: Api, request: Request) -> Answer:
    """List batches in a state, a page at a time."""
    query = request.parameters(BatchesQuery)
    read = partial(api.batches.list_page, query.state)
    found, cursor = _page(f"batches {query.state}", query, read)
    return Answer(200, Batches(batches=[_show(batch) for batch in found], cursor=cursor))


def add_items(api: Api, request: Request) -> Answer:
    """Add items in groups; the same request id again shows the same groups."""
    batch = known_id(request.params["id"])
    given = request.model(AddIn)
    # each group is a write of its own, and a call has 30 s
    if given.count > MAX_ADD_GROUPS * given.group_size:
        raise InvalidInput("count", f"at most {MAX_ADD_GROUPS} groups of group_size items a call")
    groups = api.batches.add(
        batch, given.count, request_id=given.request_id, group_size=given.group_size
    )
    return Answer(200, Groups(groups=[GroupOut.of(group) for group in groups]))


def seal_batch(api: Api, request: Request) -> Answer:
    """Say that no more items will come; completes the batch when nothing is pending."""
    return Answer(200, ProgressOut.of(api.batches.seal(request.params["id"])))


def show_batch(api: Api, request: Request) -> Answer:
    """Show a batch with its progress and metadata."""
    exact = request.parameters(ProgressQuery).exact
    name = request.params["id"]
    # exact costs 1 RRU an unfinished group: beyond so many it is an estimate
    progress = api.batches.progress(name, exact=exact, at_most=MAX_EXACT_GROUPS)
    batch = api.batches.get(name)
    others = {"metadata": dict(api.batches.metadata(name)), "opened_at": batch.opened}
    shown = ProgressOut.of(progress).model_dump()
    return Answer(200, ShownBatch.of(batch, **shown, **others))


def list_missing(api: Api, request: Request) -> Answer:
    """List a batch's pending items, a page at a time."""
    query = request.parameters(ItemsQuery)
    name = request.params["id"]
    found, cursor = _page(f"missing {name}", query, partial(api.batches.missing_page, name))
    return Answer(200, Missing(items=list(found), cursor=cursor))


def list_failed(api: Api, request: Request) -> Answer:
    """List a batch's failed items with their reasons, a page at a time."""
    query = request.parameters(ItemsQuery)
    name = request.params["id"]
    found, cursor = _page(f"failed {name}", query, partial(api.batches.failed_page, name))
    items = [FailedItemOut.of(one) for one in found]
    return Answer(200, FailedItems(items=items, cursor=cursor))


def cancel_batch(api: Api, request: Request) -> Answer:
    """Cancel a batch that has not completed; it will not be announced."""
    api.batches.cancel(request.params["id"])
    return Answer(204)


def ack_items(api: Api, request: Request) -> Answer:
    """Ack items of any batches; what was settled before stays as it was."""
    return _settled(api.batches.ack(_items(request.model(ItemsIn).items)))


def fail_items(api: Api, request: Request) -> Answer:
    """Fail items of any batches; what was settled before stays as it was."""
    given = request.model(FailsIn)
    return _settled(api.batches.fail(_items(given.items), given.reason))


def retry_items(api: Api, request: Request) -> Answer:
    """Make failed items pending again; others stay as they are."""
    return _settled(api.batches.retry(_items(request.model(ItemsIn).items)))


def _items(items: list[str]) -> list[str]:
    if len(items) > MAX_ITEMS:
        _too_many(f"at most {MAX_ITEMS} ids a call, got {len(items)}")
    # each group is a write of its own: ids of one group cost one write, however many
    groups = len({item.rpartition(":")[0] for item in items})
    if groups > MAX_GROUPS:
        _too_many(f"ids of at most {MAX_GROUPS} groups a call, got {groups}")
    return items


def _too_many(expected: str) -> NoReturn:
    raise Refusal("too-large", f"items: expected {expected}", [FieldError("items", expected)])


def _settled(result: AckResult) -> Answer:
    return Answer(200, Settled(changed=result.changed, completed=list(result.completed)))


def _is_there(api: Api, batch: str) -> bool:
    try:
        api.batches.get(batch)
    except UnknownBatch:
        return False
    return True


def _show(batch: Batch) -> BatchOut:
    return BatchOut.of(batch, opened_at=batch.opened)


def _page(
    list_name: str, query: BatchesQuery | ItemsQuery, read: Callable[..., Page[T]]
) -> tuple[tuple[T, ...], str | None]:
    """Return the entries that a cursor names, and the cursor behind them."""
    try:
        page = read(after=_place(query.cursor, list_name), limit=query.limit)
    except InvalidInput as error:
        # callers sent a cursor, and do not know `after`, which was read from it
        raise InvalidInput("cursor", _SAME_LIST) if error.field == "after" else error from None
    return page.entries, None if page.after is None else pack_cursor([list_name, page.after])


def _place(cursor: str | None, list_name: str) -> str | None:
    if cursor is None:
        return None
    fields = unpack_cursor(cursor)
    # a cursor names its list: one of another list would skip entries in silence
    if not isinstance(fields, list) or len(fields) != 2 or fields[0] != list_name:
        raise InvalidInput("cursor", _SAME_LIST)
    if not isinstance(fields[1], str):
        raise InvalidInput("cursor", _SAME_LIST)
    return fields[1]


_SAME_LIST: Final = "the cursor of the page before, of the same list"

BATCH_ROUTES: Final = (
    Route("POST", "/batches", open_batch),
    Route("GET", "/batches", list_batches, BatchesQuery),
    Route("POST", "/batches/acks", ack_items),
    Route("POST", "/batches/fails", fail_items),
    Route("POST", "/batches/retries", retry_items),
    Route("GET", "/batches/{id}", show_batch, ProgressQuery),
    Route("DELETE", "/batches/{id}", cancel_batch),
    Route("POST", "/batches/{id}/items", add_items),
    Route("POST", "/batches/{id}/seal", seal_batch),
    Route("GET", "/batches/{id}/missing", list_missing, ItemsQuery),
    Route("GET", "/batches/{id}/failed", list_failed, ItemsQuery),
)
