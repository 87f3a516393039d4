"""The stream of a table: shards, iterators and records in the API's own JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPIRED: Final = {"ExpiredIteratorException"}
_TRIMMED: Final = {"TrimmedDataAccessException"}


class StreamUnavailableError(Exception):
    """The stream cannot be read now; a later read may succeed."""


class IteratorExpiredError(Exception):
    """The iterator has expired; request a new one after the last sequence number."""


class RecordsTrimmedError(Exception):
    """The records after that sequence number are gone; read from the oldest one left."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of the stream; `closed` shards get no more records."""

    shard_id: str
    parent: str | None
    closed: bool


class StreamSource(Protocol):
    """One stream; all methods raise `StreamUnavailableError` if it does not answer."""

    arn: str
    hash_key: str

    def shards(self) -> list[Shard]:
        """Return all shards, oldest first."""
        ...

    def iterator(self, shard_id: str, *, after: str | None, latest: bool) -> str:
        """Return an iterator after a sequence number, else at the end or at the beginning."""
        ...

    def records(self, iterator: str) -> tuple[list[dict[str, Any]], str | None]:
        """Return up to 1,000 records and the next iterator, None at the end of the shard."""
        ...


class EngineStream:
    """The stream of a table in a DynamoDB engine, by stream ARN or table name.

    The SDK does not parse `GetRecords`: Lambda's records are made of its JSON, and parsing it would
    take half the time of reading.
    """

    def __init__(self, source: str, clients: Mapping[str, Any]) -> None:
        """`clients` holds boto3 clients as `dynamodb` and `dynamodbstreams`."""
        self._client = clients["dynamodbstreams"]
        events = self._client.meta.events
        events.register("before-parse.dynamodb-streams.GetRecords", _keep_wire, unique_id=__name__)
        self.arn = source if source.startswith("arn:") else _arn_of(source, clients["dynamodb"])
        self.hash_key = ""

    def shards(self) -> list[Shard]:
        """Return all shards, oldest first, and learn the key schema."""
        found: list[Shard] = []
        start: dict[str, str] = {}
        while True:
            answer = self._call("describe_stream", StreamArn=self.arn, **start)
            answer = answer["StreamDescription"]
            schema = {entry["KeyType"]: entry["AttributeName"] for entry in answer["KeySchema"]}
            self.hash_key = schema["HASH"]
            for shard in answer["Shards"]:
                closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
                found.append(Shard(shard["ShardId"], shard.get("ParentShardId"), closed))
            last = answer.get("LastEvaluatedShardId")
            if last is None:
                return found
            start = {"ExclusiveStartShardId": last}

    def iterator(self, shard_id: str, *, after: str | None, latest: bool) -> str:
        """Return an iterator; see `StreamSource`."""
        position = {"ShardIteratorType": "LATEST" if latest else "TRIM_HORIZON"}
        if after is not None:
            position = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": after}
        answer = self._call("get_shard_iterator", StreamArn=self.arn, ShardId=shard_id, **position)
        return str(answer["ShardIterator"])

    def records(self, iterator: str) -> tuple[list[dict[str, Any]], str | None]:
        """Return records as the API's JSON; see `StreamSource`."""
        answer = self._call("get_records", ShardIterator=iterator, Limit=1000)["Wire"]
        return answer["Records"], answer.get("NextShardIterator")

    def _call(self, operation: str, **parameters: Any) -> Any:
        try:
            return getattr(self._client, operation)(**parameters)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _EXPIRED:
                raise IteratorExpiredError from error
            if code in _TRIMMED:
                raise RecordsTrimmedError from error
            raise StreamUnavailableError(f"{operation} of {self.arn}: {error}") from error
        except BotoCoreError as error:
            raise StreamUnavailableError(f"{operation} of {self.arn}: {error}") from error


def _keep_wire(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Return the JSON of a successful answer unparsed."""
    if response_dict["status_code"] == 200:
        customized_response_dict["Wire"] = json.loads(response_dict["body"])
        response_dict["body"] = b"{}"


def _arn_of(table: str, client: Any) -> str:
    description = client.describe_table(TableName=table)["Table"]
    arn: str | None = description.get("LatestStreamArn")
    if arn is None:
        raise ValueError(f"the table {table} has no stream")
    return arn
