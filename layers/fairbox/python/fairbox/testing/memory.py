"""An in-memory DynamoDB that speaks the methods of boto3's low-level client."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Final

from . import administration, bulk, reads, statements, transactions, writes
from .manual_clock import ManualClock
from .memory_tables import Clock, Engine
from .operation_requests import Request, Response, check_parameters, check_shapes
from .pages import Paginator, paginator
from .refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .streams import Stream


class MemoryDynamoDB:
    """Tables in memory, behind the keyword arguments and wire dicts of boto3's client.

    `clock` tells the time (epoch seconds) for stream records, request tokens and `expire`;
    `index_lag` is the number of seconds by which global secondary indexes trail their table.
    Refusals are botocore's `ClientError`; ``ConsumedCapacity`` has the units that AWS bills.
    Callers never share state with the tables: items are copied both ways. Threads may share it.
    """

    bills_like_aws: Final = True

    def __init__(
        self, clock: Clock | None = None, *, index_lag: float = 0.0, region: str = "us-east-1"
    ) -> None:
        self._engine = Engine(clock if clock is not None else ManualClock(), index_lag, region)
        self._lock = threading.RLock()

    def _call(
        self, operation: str, work: Callable[[Engine, Request], Response], request: Request
    ) -> Response:
        check_parameters(operation, request)
        with self._lock:
            try:
                response = work(self._engine, request)
            except Exception as error:
                # boto3 would have refused the shape before it sent anything, in words of its own
                if not isinstance(error, Refusal) or error.code == "ValidationException":
                    check_shapes(operation, request)
                if isinstance(error, Refusal):
                    raise error.as_client_error(operation) from None
                raise

        response["ResponseMetadata"] = {"HTTPStatusCode": 200, "RetryAttempts": 0}
        return response

    def create_table(self, **request: Any) -> Response:
        """Make a table, active at once."""
        return self._call("CreateTable", administration.create_table, request)

    def describe_table(self, **request: Any) -> Response:
        """Describe a table."""
        return self._call("DescribeTable", administration.describe_table, request)

    def delete_table(self, **request: Any) -> Response:
        """Drop a table."""
        return self._call("DeleteTable", administration.delete_table, request)

    def list_tables(self, **request: Any) -> Response:
        """Name the tables."""
        return self._call("ListTables", administration.list_tables, request)

    def update_time_to_live(self, **request: Any) -> Response:
        """Set or unset the attribute of expiry."""
        return self._call("UpdateTimeToLive", administration.update_time_to_live, request)

    def describe_time_to_live(self, **request: Any) -> Response:
        """Tell the attribute of expiry."""
        return self._call("DescribeTimeToLive", administration.describe_time_to_live, request)

    def get_item(self, **request: Any) -> Response:
        """Read one item."""
        return self._call("GetItem", reads.get_item, request)

    def put_item(self, **request: Any) -> Response:
        """Write one item whole."""
        return self._call("PutItem", writes.put_item, request)

    def update_item(self, **request: Any) -> Response:
        """Change one item, or make it."""
        return self._call("UpdateItem", writes.update_item, request)

    def delete_item(self, **request: Any) -> Response:
        """Delete one item."""
        return self._call("DeleteItem", writes.delete_item, request)

    def query(self, **request: Any) -> Response:
        """Read a page of one partition, in order."""
        return self._call("Query", reads.query, request)

    def scan(self, **request: Any) -> Response:
        """Read a page of all partitions, or of one segment of them."""
        return self._call("Scan", reads.scan, request)

    def batch_get_item(self, **request: Any) -> Response:
        """Read up to 100 items."""
        return self._call("BatchGetItem", bulk.batch_get_item, request)

    def batch_write_item(self, **request: Any) -> Response:
        """Put or delete up to 25 items."""
        return self._call("BatchWriteItem", bulk.batch_write_item, request)

    def transact_write_items(self, **request: Any) -> Response:
        """Write up to 100 items, all or none."""
        return self._call("TransactWriteItems", transactions.transact_write_items, request)

    def transact_get_items(self, **request: Any) -> Response:
        """Read up to 100 items as of one moment."""
        return self._call("TransactGetItems", transactions.transact_get_items, request)

    def batch_execute_statement(self, **request: Any) -> Response:
        """Run up to 25 PartiQL updates, deletes and inserts, each for itself."""
        return self._call("BatchExecuteStatement", statements.batch_execute_statement, request)

    def get_paginator(self, operation: str) -> Paginator:
        """A paginator over ``query`` or ``scan``; ValueError for anything else."""
        return paginator(self, operation)

    def close(self) -> None:
        """Nothing to close; boto3's client has the method."""

    def stream(self, table: str) -> Stream:
        """The stream of a table, also of one that was dropped; KeyError where it has none."""
        found = self._engine.tables.get(table)
        stream = found.stream if found else self._engine.retired_streams.get(table)
        if stream is None:
            raise KeyError(f"table {table} has no stream")
        return stream

    def expire(self, table: str) -> int:
        """Delete items past their time to live, as the service does by itself; return how many."""
        with self._lock:
            return writes.expire(self._engine, table)

    def load(self, table: str, items: Iterable[dict[str, Any]]) -> int:
        """Put many items at once, as an import does; how many.

        No stream record is made and nothing is billed. Unlike with every other method the items
        are kept, not copied: values that are the same may be one object, and none may be changed
        by the caller from then on.
        """
        with self._lock:
            return administration.load_items(self._engine, table, items)

    def catch_up(self, table: str) -> None:
        """Make the indexes of a table show all writes, in spite of their lag."""
        with self._lock:
            for index in self._engine.tables[table].indexes.values():
                index.catch_up(math.inf)

    def items(self, table: str) -> list[dict[str, Any]]:
        """Copies of all items of a table: for a test's assertions, not for code under test."""
        with self._lock:
            return administration.items_of(self._engine, table)
