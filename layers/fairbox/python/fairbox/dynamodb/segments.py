"""Segments of shards: filed by receives, read when they end, expired by the table."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fairbox.codec import attributes as attr
from fairbox.codec.keys import segments_pk
from fairbox.codec.segments import read_segment, segment_item, segments_behind
from fairbox.dynamodb.statements import execute, insertion
from fairbox.errors import Unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dynamodb.calls import Calls
    from fairbox.dynamodb.statements import Statement
    from fairbox.model.segments import Segment
    from fairbox.model.stored_messages import Shard

_PAGE: Final = 60


class SegmentRows:
    """Reads and files segments."""

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

    def read(self, shard: Shard, checked: int) -> tuple[list[Segment], bool]:
        """Return the next segments that end behind a time (ms), and whether there are more.

        They are 60, or more that end at one time, so that the next call goes on. They are
        consistent: one that was filed before a check was asked for is among them.
        """
        low, high = segments_behind(checked)
        more = False
        pages = self._calls.pages(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            Limit=_PAGE,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :low AND :high",
            ExpressionAttributeNames={"#pk": attr.PK, "#sk": attr.SK},
            ExpressionAttributeValues={
                ":pk": {"S": segments_pk(*shard)},
                ":low": {"S": low},
                ":high": {"S": high},
            },
        )
        found = []
        for page in pages:
            for item in page["Items"]:
                with suppress(Unreadable):  # of a newer release, or damaged: a scan finds its part
                    found.append(read_segment(item))
            more = "LastEvaluatedKey" in page
            if not more or not found or found[0].end != found[-1].end:
                break
        return found, more

    def statements(self, shard: Shard, segments: Sequence[Segment]) -> list[Statement]:
        """Return the statements that file segments (1 WRU each)."""
        return [insertion(self._table, segment_item(shard, segment)) for segment in segments]

    def file(self, shard: Shard, segments: Sequence[Segment]) -> None:
        """File segments (1 WRU each); one that is filed already stays.

        Raises:
            Throttled, Unavailable: some may not be filed.
        """
        for answer in execute(self._calls, self.statements(shard, segments)):
            if answer.error is not None:
                raise answer.error
