"""Reads of one item, of a partition (query) and of everything (scan), in pages of 1 MB."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final

from fairbox.testing.units import read_units

from .grammar import ExpressionError
from .operation_requests import Bill, Expressions, Request, Response, projection_of
from .refusals import invalid, invalid_parameter, parameter_error
from .stores import TOKEN_SPAN, Position, Row
from .values import Item, Value, copy_item, kind_of, scalar, take_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .expressions import CompiledCondition, KeyTerm
    from .memory_tables import Engine, Index, Keys, Table

PAGE_BYTES: Final = 1024 * 1024
MAX_SEGMENTS: Final = 1_000_000


def get_item(engine: Engine, request: Request) -> Response:
    """GetItem."""
    bill = Bill(request.get("ReturnConsumedCapacity"))
    projection = projection_of(request)
    table = engine.table(request["TableName"])
    row = table.store.get(table.key_from(request["Key"])[0])
    response: Response = {}
    if row is not None:
        response["Item"] = projection.keep(row.item) if projection else copy_item(row.item)

    if bill.wanted:
        size = row.size if row is not None else 0
        bill.add(table.name, read_units(size, consistent=request.get("ConsistentRead", False)))
        response["ConsumedCapacity"] = bill.entries()[0]
    return response


class Page:
    """One page of a query or scan: its read, and its answer."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self.request = request
        self.table: Table = engine.table(request["TableName"])
        self.index: Index | None = None
        self.consistent: bool = request.get("ConsistentRead", False)
        self.bill = Bill(request.get("ReturnConsumedCapacity"))

        name = request.get("IndexName")
        if name is not None:
            self.index = self.table.indexes.get(name)
            if self.index is None:
                raise invalid(f"The table does not have the specified index: {name}")
            if self.consistent:
                raise invalid("Consistent reads are not supported on global secondary indexes")
            # no timer runs here: entries become visible when somebody reads
            self.index.catch_up(engine.clock.now())

        place: Table | Index = self.index if self.index is not None else self.table
        self.keys: Keys = place.keys
        self.store = place.store

        self.expressions = Expressions(request)
        self.filter = self.expressions.condition("FilterExpression")
        self.projection = self.expressions.projection()
        self.limit: int | None = request.get("Limit")
        if self.limit is not None and self.limit < 1:
            raise parameter_error(
                f"Invalid value for parameter Limit, value: {self.limit}, valid min value: 1"
            )

        self.counts = self._select()
        self._refuse_unprojected()

    def _select(self) -> bool:
        select = self.request.get("Select", "")
        if select not in {"", "SPECIFIC_ATTRIBUTES"} and self.projection is not None:
            raise invalid(f"Cannot specify the ProjectionExpression when choosing to get {select}")
        if select == "SPECIFIC_ATTRIBUTES" and self.projection is None:
            raise invalid_parameter(
                "Must specify the ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES"
            )
        if select == "ALL_PROJECTED_ATTRIBUTES" and self.index is None:
            raise invalid(
                "ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName"
            )

        # an index has only copies of projected attributes; a query of it never asks the table
        narrow = self.index is not None and self.index.projected is not None
        if select == "ALL_ATTRIBUTES" and self.index is not None and narrow:
            raise invalid_parameter(
                "Select type ALL_ATTRIBUTES is not supported for global secondary index "
                f"{self.index.name} because its projection type is not ALL"
            )

        return bool(select == "COUNT")

    def _refuse_unprojected(self) -> None:
        """Refuse attributes of the table that the index does not carry."""
        if self.index is None or self.index.projected is None:
            return

        shown = set(map(str, self.projection.tree)) if self.projection else set()
        if unknown := sorted(shown - {*self.index.projected}):
            raise invalid_parameter(
                f"Global secondary index {self.index.name} does not project [{', '.join(unknown)}]"
            )

        # a scan may filter by attributes that the index lacks: they are absent in every entry
        queried = self.filter is not None and "KeyConditionExpression" in self.request
        tested = self.filter.roots if self.filter and queried else frozenset()
        if unknown := sorted(tested - {*self.index.projected}):
            raise invalid_parameter(
                f"Secondary index {self.index.name} does not project one or more filter "
                f"attributes: [{', '.join(unknown)}]"
            )

    def start(self) -> Position | None:
        """The position of ExclusiveStartKey, where given."""
        key = self.request.get("ExclusiveStartKey")
        if key is None:
            return None

        names = {*self.table.keys.names, *self.keys.names}
        # on an index, both keys: many entries may share the index's own
        if key.keys() != names:
            raise invalid("The provided starting key is invalid")
        taken = {name: take_value(value) for name, value in key.items()}
        kinds = {**self.table.keys.kinds, **self.keys.kinds}
        if any(kinds[name] not in value for name, value in taken.items()):
            raise invalid("The provided starting key is invalid")

        # the item itself may be deleted since: only its place matters
        base = self.table.key_of(taken)
        return base if self.index is None else self.index.position(taken, base)

    def read(self, rows: Iterable[Row]) -> Response:
        """Evaluate rows up to the limits and shape the answer."""
        size = scanned = count = 0
        items: list[Item] = []
        test = self.filter.test if self.filter is not None else None
        values = self.expressions.values
        last: Row | None = None

        # limits count rows that are read, before the filter: a page may be empty and not the last
        for row in rows:
            # tested before the next row, so the row that passes 1 MB still belongs to the page
            if size >= PAGE_BYTES:
                break
            scanned += 1
            size += row.size
            if test is None or test(row.item, values):
                count += 1
                if not self.counts:
                    items.append(self._shown(row.item))
            last = row
            # at the limit there is a key to go on from, even if nothing follows, as on AWS
            if scanned == self.limit:
                break
        else:
            # the loop ended by itself: nothing follows
            last = None

        response: Response = {"Count": count, "ScannedCount": scanned}
        if not self.counts:
            response["Items"] = items
        if last is not None:
            response["LastEvaluatedKey"] = self._key(last.item)
        if self.bill.wanted:
            response["ConsumedCapacity"] = self._consumed(size)

        return response

    def _shown(self, item: Item) -> Item:
        return copy_item(item) if self.projection is None else self.projection.keep(item)

    def _key(self, item: Item) -> Item:
        return {name: dict(item[name]) for name in (*self.table.keys.names, *self.keys.names)}

    def _consumed(self, size: int) -> Response:
        # the sum of the page is rounded up, also for rows that the filter dropped
        units = read_units(size, consistent=self.consistent)
        if self.index is None:
            self.bill.add(self.table.name, units)
        else:
            self.bill.add(self.table.name, 0.0, {self.index.name: units})
        return self.bill.entries()[0]


def query(engine: Engine, request: Request) -> Response:
    """Query."""
    page = Page(engine, request)
    condition = page.expressions.key_condition()
    page.expressions.done()
    try:
        hash_term, range_term = condition.split(page.keys.hash_name, page.keys.range_name)
    except ExpressionError as error:
        raise invalid(str(error)) from None

    values = page.expressions.values
    hash_value = _operands(page, hash_term, values)[0]
    _refuse_key_filter(page, page.filter)

    start = page.start()
    if start is not None and start[0] != hash_value:
        raise invalid(
            "The provided starting key is outside query boundaries based on provided conditions"
        )

    partition = page.store.partitions.get(hash_value)
    if range_term is not None:
        operands = _operands(page, range_term, values)
        if start is not None and page.index is None:
            # the condition is asked of the start key alone
            begin, end = _bounds([start[1]], None, range_term.sign, operands)
            if begin == end:
                raise invalid("The provided starting key does not match the range key predicate")
    # behind the checks: a wrong start key is refused in an empty partition too
    if partition is None:
        return page.read(())

    low, high = 0, len(partition.order)
    first = None if page.index is None else _first
    if range_term is not None:
        low, high = _bounds(partition.order, first, range_term.sign, operands)

    forward = request.get("ScanIndexForward", True)
    if start is not None and forward:
        # found by value, as the row of the key may be gone
        low = max(low, bisect_right(partition.order, start[1]))
    elif start is not None:
        high = min(high, bisect_left(partition.order, start[1]))

    return page.read(_rows(partition.order, partition.rows, low, high, forward=forward))


def _rows(
    order: list[Any], rows: dict[Any, Row], low: int, high: int, *, forward: bool
) -> Iterator[Row]:
    positions = range(low, high) if forward else range(high - 1, low - 1, -1)
    for position in positions:
        yield rows[order[position]]


def _first(sort: Any) -> Any:
    return sort[0]


def _operands(page: Page, term: KeyTerm, values: dict[str, Value]) -> list[Any]:
    kind = page.keys.kinds[term.name]
    operands: list[Any] = []

    for ref in term.refs:
        value = values[ref]
        if kind not in value:
            raise invalid_parameter("Condition parameter type does not match schema type")
        if kind != "N" and not value[kind]:
            raise invalid(
                "One or more parameter values are not valid. The AttributeValue for a key "
                f"attribute cannot contain an empty string value. Key: {term.name}"
            )
        operands.append(scalar(value))

    if term.sign == "BETWEEN" and operands[0] > operands[1]:
        raise invalid(
            "Invalid KeyConditionExpression: The BETWEEN operator requires upper bound to be "
            "greater than or equal to lower bound"
        )
    if term.sign == "begins_with" and kind_of(values[term.refs[0]]) == "N":
        raise invalid(
            "Invalid KeyConditionExpression: Incorrect operand type for operator or function; "
            "operator or function: begins_with, operand type: N"
        )
    return operands


def _bounds(
    order: list[Any], first: Callable[[Any], Any] | None, sign: str, operands: list[Any]
) -> tuple[int, int]:
    """The slice of the rows whose range value satisfies the condition."""
    value = operands[0]
    end = len(order)

    # all texts with a prefix lie together, from the prefix itself on
    if sign == "begins_with":
        low = bisect_left(order, value, key=first)
        high = low
        while high < end and (order[high] if first is None else order[high][0]).startswith(value):
            high += 1
        return low, high
    if sign == "BETWEEN":
        return bisect_left(order, value, key=first), bisect_right(order, operands[1], key=first)

    left, right = bisect_left(order, value, key=first), bisect_right(order, value, key=first)
    return {
        "=": (left, right),
        "<": (0, left),
        "<=": (0, right),
        ">": (right, end),
        ">=": (left, end),
    }[sign]


def _refuse_key_filter(page: Page, condition: CompiledCondition | None) -> None:
    if condition is None:
        return
    for name in page.keys.names:
        # the service wants key attributes in the key condition, where they save reads
        if name in condition.roots:
            raise invalid(
                "Filter Expression can only contain non-primary key attributes: "
                f"Primary key attribute: {name}"
            )


def scan(engine: Engine, request: Request) -> Response:
    """Scan, the whole or one of up to 1,000,000 segments."""
    page = Page(engine, request)
    page.expressions.done()

    segment, total = request.get("Segment"), request.get("TotalSegments")
    if (segment is None) != (total is None):
        missing = "TotalSegments" if total is None else "Segment"
        given = "Segment" if total is None else "TotalSegments"
        raise invalid(
            f"The {missing} parameter is required but was not present in the request when "
            f"{given} parameter is present"
        )

    if total is None or segment is None:
        segment, total = 0, 1
    if not 1 <= total <= MAX_SEGMENTS:
        raise invalid(
            f"1 validation error detected: Value '{total}' at 'totalSegments' failed to "
            "satisfy constraint: Member must have value between 1 and 1000000"
        )
    if not 0 <= segment < total:
        raise invalid(
            f"The Segment parameter is zero-based and must be less than parameter TotalSegments: "
            f"Segment: {segment} is not less than TotalSegments: {total}"
        )

    # a segment is a range of hashes, so that all keys of a partition are in one of them
    first, last = segment * TOKEN_SPAN // total, (segment + 1) * TOKEN_SPAN // total
    return page.read(page.store.scan(first, last, page.start()))
