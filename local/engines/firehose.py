"""A small Firehose: it buffers by the template's hints and writes objects to S3 as AWS does."""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from local.cloudformation.identities import FIREHOSE
from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from starlette.requests import Request

    from local.cloudformation.template import Template

RECORDS_PER_CALL = 500
BYTES_PER_CALL = 4 * 1024 * 1024
BYTES_PER_RECORD = 1_000 * 1024
TICK_SECONDS = 0.2
THROTTLED = "ServiceUnavailableException"
SLOW_DOWN = "Slow down."
_TIMESTAMP = re.compile(r"!\{timestamp:([^}]+)\}")
_PATTERN_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


class FirehoseError(Exception):
    """A refused call: `code` as AWS names it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """Settings of one delivery stream to S3."""

    name: str
    bucket: str
    prefix: str = ""
    compressed: bool = False
    extension: str = ""
    seconds: float = 300.0
    size: int = 5 * 1024 * 1024  # bytes of records, before this stream compresses them

    @classmethod
    def from_properties(cls, name: str, properties: Mapping[str, Any]) -> StreamSettings:
        """Read the resolved properties of a delivery stream.

        Raises:
            LocalError: it does not write to S3, or it transforms records.
        """
        target = properties.get("ExtendedS3DestinationConfiguration")
        if target is None or properties.get("DeliveryStreamType", "DirectPut") != "DirectPut":
            raise LocalError(f"{name} ({FIREHOSE}) is not DirectPut with an extended S3 target")
        for key in (
            "ProcessingConfiguration",
            "DynamicPartitioningConfiguration",
            "DataFormatConversionConfiguration",
        ):
            if target.get(key, {}).get("Enabled"):
                raise LocalError(f"{name} ({FIREHOSE}) sets {key}: not known here")
        compression = target.get("CompressionFormat", "UNCOMPRESSED")
        if compression not in ("UNCOMPRESSED", "GZIP"):
            raise LocalError(f"{name} ({FIREHOSE}) compresses by {compression}: GZIP is known here")
        hints = target.get("BufferingHints", {})
        default = ".gz" if compression == "GZIP" else ""
        return cls(
            name=name,
            bucket=target["BucketARN"].split(":::")[1],
            prefix=target.get("Prefix", ""),
            compressed=compression == "GZIP",
            extension=target.get("FileExtension", default),
            seconds=float(hints.get("IntervalInSeconds", 300)),
            size=int(hints.get("SizeInMBs", 5)) * 1024 * 1024,
        )


def expand_prefix(prefix: str, moment: datetime) -> str:
    """Fill in `!{timestamp:...}`; without one, AWS appends `yyyy/MM/dd/HH/`.

    Raises:
        LocalError: another expression is in the prefix, or an unknown letter in its pattern.
    """
    if "!{" not in prefix:
        return prefix + moment.strftime("%Y/%m/%d/%H/")
    expanded = _TIMESTAMP.sub(lambda found: moment.strftime(_strftime(found[1])), prefix)
    if "!{" in expanded:
        raise LocalError(f"prefix {prefix!r} has an expression other than timestamp")
    return expanded


def _strftime(pattern: str) -> str:
    """Translate the letters of Java's DateTimeFormatter that archives use."""
    parts = []
    for found in re.finditer(r"'([^']*)'|([A-Za-z])\2*|.", pattern):
        text = found[0]
        if found[2] and text not in _PATTERN_LETTERS:
            raise LocalError(f"timestamp pattern {pattern!r}: {text!r} is not known here")
        parts.append(found[1] or _PATTERN_LETTERS.get(text, text))
    return "".join(parts)


@dataclass(kw_only=True)
class DeliveryStream:
    """One stream's buffer; thread-safe."""

    settings: StreamSettings
    put_object: Callable[..., Any]
    now: Callable[[], datetime]
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    _buffer: list[bytes] = field(default_factory=list)
    _bytes: int = 0
    _since: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, records: list[bytes]) -> None:
        """Buffer records; write the object when the buffer is full."""
        with self._lock:
            for record in records:
                self._since = self._since or self.now()
                self._buffer.append(record)
                self._bytes += len(record)
                if self._bytes >= self.settings.size:
                    self._write()

    def tick(self) -> None:
        """Write the object when the oldest record has waited for the buffering interval."""
        with self._lock:
            if self._since is None:
                return
            if (self.now() - self._since).total_seconds() >= self.settings.seconds:
                self._write()

    def flush(self) -> None:
        """Write the buffered records."""
        with self._lock:
            if self._buffer:
                self._write()

    def _write(self) -> None:
        moment = self._since or self.now()  # AWS: the arrival of the oldest record
        content = b"".join(self._buffer)
        key = (
            expand_prefix(self.settings.prefix, moment)
            + f"{self.settings.name}-1-{moment:%Y-%m-%d-%H-%M-%S}-{self.new_id()}"
            + self.settings.extension
        )
        compressed = gzip.compress(content, mtime=0) if self.settings.compressed else content
        encoding = {"ContentEncoding": "gzip"} if self.settings.compressed else {}
        try:
            self.put_object(
                Bucket=self.settings.bucket,
                Key=key,
                Body=compressed,
                ContentType="application/octet-stream",
                **encoding,
            )
        except (ClientError, BotoCoreError) as exc:  # the records stay buffered until the next tick
            print(f"{self.settings.name}: not written to {self.settings.bucket}: {exc}")
            return
        self._buffer, self._bytes, self._since = [], 0, None


def firehose_streams(
    template: Template, *, put_object: Callable[..., Any], now: Callable[[], datetime]
) -> dict[str, DeliveryStream]:
    """Return the template's delivery streams by physical name."""
    streams = {}
    for name in template.of_type(FIREHOSE):
        physical = template.physical(name)
        settings = StreamSettings.from_properties(physical, template.properties(name))
        expand_prefix(settings.prefix, now())  # refuse unknown patterns at the start
        streams[physical] = DeliveryStream(settings=settings, put_object=put_object, now=now)
    return streams


class Firehose:
    """The service: an ASGI application (`app`) and the thread that watches the buffers' age.

    Attributes:
        throttle: given the number of records of a batch, the indices of those that are throttled,
            as AWS does over the stream's quota; it may raise `throttled()` to refuse the call.
    """

    def __init__(
        self,
        streams: Mapping[str, DeliveryStream],
        *,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        throttle: Callable[[int], Collection[int]] = lambda _: (),
    ) -> None:
        self.throttle = throttle
        self._streams = dict(streams)
        self._new_id = new_id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="firehose", daemon=True)
        self.app = Starlette(routes=[Route("/", self._serve, methods=["POST"])])

    def start(self) -> None:
        """Watch the buffers."""
        self._thread.start()

    def stop(self) -> None:
        """Write the buffered records and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()

    def flush(self) -> None:
        """Write the buffered records of all streams."""
        for stream in self._streams.values():
            stream.flush()

    def _watch(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            for stream in self._streams.values():
                stream.tick()

    async def _serve(self, request: Request) -> Response:
        body = await request.body()

        status, answer = await run_in_threadpool(
            self.call, request.headers.get("x-amz-target", ""), body
        )
        return Response(
            json.dumps(answer), status_code=status, media_type="application/x-amz-json-1.1"
        )

    def call(self, target: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one call of the wire protocol: status and JSON."""
        operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "PutRecord": self.put_record,
            "PutRecordBatch": self.put_record_batch,
        }
        try:
            operation = operations[target.rpartition(".")[2]]
            return 200, operation(json.loads(body))
        except KeyError as exc:
            return 400, {"__type": "UnknownOperationException", "message": f"{target}: {exc}"}
        except (FirehoseError, ValueError) as exc:
            code = getattr(exc, "code", "InvalidArgumentException")
            return 503 if code == THROTTLED else 400, {"__type": code, "message": str(exc)}

    def put_record(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Accept one record."""
        stream = self._stream(request)
        stream.add([_data(request["Record"])])
        return {"RecordId": self._new_id(), "Encrypted": False}

    def put_record_batch(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Accept up to 500 records of 4 MiB together; each has its own result.

        Raises:
            FirehoseError: too many or too large, the stream is unknown, or the call is throttled:
                nothing is taken.
        """
        stream = self._stream(request)
        records = [_data(record) for record in request["Records"]]
        if not 1 <= len(records) <= RECORDS_PER_CALL:
            raise FirehoseError("InvalidArgumentException", f"1 to {RECORDS_PER_CALL} records")
        if sum(len(record) for record in records) > BYTES_PER_CALL:
            raise FirehoseError("InvalidArgumentException", "records are over 4 MiB together")
        refused = frozenset(self.throttle(len(records)))
        stream.add([record for n, record in enumerate(records) if n not in refused])
        failed = {"ErrorCode": THROTTLED, "ErrorMessage": SLOW_DOWN}
        results = [
            failed if n in refused else {"RecordId": self._new_id()} for n in range(len(records))
        ]
        return {"FailedPutCount": len(refused), "Encrypted": False, "RequestResponses": results}

    def _stream(self, request: Mapping[str, Any]) -> DeliveryStream:
        name = request["DeliveryStreamName"]
        if name not in self._streams:
            raise FirehoseError("ResourceNotFoundException", f"no delivery stream {name}")
        return self._streams[name]


def throttled() -> FirehoseError:
    """Return AWS's refusal of a whole call over the stream's quota."""
    return FirehoseError(THROTTLED, SLOW_DOWN)


def _data(record: Mapping[str, str]) -> bytes:
    data = base64.b64decode(record["Data"], validate=True)
    if len(data) > BYTES_PER_RECORD:
        raise FirehoseError("InvalidArgumentException", "a record is over 1,000 KiB")
    return data
