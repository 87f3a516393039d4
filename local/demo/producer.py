"""The demo's producer: a business row and its message in one transaction, or the HTTP API."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fairbox import Message, MessageRef

from local.accounting.business import BUSINESS_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox import Outbox

    from local.demo.plan import Sample

_WORKERS: Final = 4
_TRIES: Final = 10


class Producer:
    """Publishes samples from a few threads; one thread publishes all samples of a key in order."""

    def __init__(self, outbox: Outbox, business: Any, api_url: str) -> None:
        self._outbox = outbox
        self._business = business
        self._api = urlsplit(api_url).netloc
        self._lock = threading.Lock()
        self._sent: dict[MessageRef, Sample] = {}

    @property
    def sent(self) -> dict[MessageRef, Sample]:
        """Acknowledged samples so far."""
        with self._lock:
            return dict(self._sent)

    def publish(self, samples: Sequence[Sample], progress: Callable[[], None]) -> None:
        """Publish the samples; `progress` is called after each."""
        lanes: list[list[Sample]] = [[] for _ in range(_WORKERS)]
        for sample in samples:
            lanes[hash((sample.topic, sample.key)) % _WORKERS].append(sample)
        with ThreadPoolExecutor(_WORKERS) as pool:
            for done in [pool.submit(self._run, lane, progress) for lane in lanes]:
                done.result()

    def _run(self, samples: Sequence[Sample], progress: Callable[[], None]) -> None:
        for sample in samples:
            ref = self._through_api(sample) if sample.through_api else self._in_transaction(sample)
            with self._lock:
                self._sent[ref] = sample
            progress()

    def _in_transaction(self, sample: Sample) -> MessageRef:
        message = Message(
            topic=sample.topic,
            body=sample.body,
            partition_key=sample.key,
            content_type="application/json",
        )
        row = {
            "Put": {
                "TableName": BUSINESS_TABLE,
                "Item": {
                    "id": {"S": message.id},
                    "kind": {"S": sample.topic},
                    "key": {"S": sample.key},
                },
            }
        }
        return self._outbox.transact([row], message)[0]

    def _through_api(self, sample: Sample) -> MessageRef:
        """Publish through the API; repeat a request whose answer is lost, as any client would."""
        headers = {
            "content-type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": str(sample.number),
            "ce-source": "/demo",
            "ce-type": f"github.{sample.topic}",
            "ce-partitionkey": sample.key,
        }
        for _ in range(_TRIES):
            connection = HTTPConnection(self._api, timeout=60)
            try:
                connection.request("POST", f"/topics/{sample.topic}/messages", sample.body, headers)
                answer = connection.getresponse()
                text = answer.read()
            finally:
                connection.close()
            if answer.status == 202:
                return MessageRef.parse(json.loads(text)["refs"][0])
            if answer.status not in (429, 503):
                break
        raise RuntimeError(f"the API answered {answer.status}: {text.decode(errors='replace')}")
