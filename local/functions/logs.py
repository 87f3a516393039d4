"""Function logs: a file per function, and their embedded metrics sent to CloudWatch."""

from __future__ import annotations

import json
import queue
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedWriter
    from pathlib import Path

DATA_PER_CALL = 500
WAIT_SECONDS = 0.5


class FunctionLogs:
    """Writes each function's lines to `<function>.log` and extracts the metrics; thread-safe."""

    def __init__(self, folder: Path, *, cloudwatch: Any = None) -> None:
        self._folder = folder
        self._files: dict[str, BufferedWriter] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._cloudwatch = cloudwatch
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._thread = threading.Thread(target=self._forward, name="metrics", daemon=True)
        if cloudwatch is not None:
            self._thread.start()

    def path(self, function: str) -> Path:
        """Return the path of a function's log."""
        return self._folder / f"{function}.log"

    def write(self, function: str, line: bytes) -> None:
        """Take one line; drop it after `close`."""
        with self._lock:
            if self._closed:
                return
            if function not in self._files:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._files[function] = self.path(function).open("ab")
            self._files[function].write(line)
            self._files[function].flush()
        if self._cloudwatch is not None and line.startswith(b"{") and b'"_aws"' in line:
            self._lines.put(line)

    def close(self) -> None:
        """Send the last metrics and close the files."""
        if self._thread.is_alive():
            self._lines.put(None)
            self._thread.join(timeout=10)
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files = {}
            self._closed = True

    def _forward(self) -> None:
        """Send the metrics of each half second together, until `close`."""
        ending = False
        while not ending:
            data: dict[str, list[dict[str, Any]]] = {}
            ending = self._collect(data)
            for namespace, metrics in data.items():
                for start in range(0, len(metrics), DATA_PER_CALL):
                    self._put(namespace, metrics[start : start + DATA_PER_CALL])

    def _collect(self, data: dict[str, list[dict[str, Any]]]) -> bool:
        line = self._lines.get()
        deadline = time.monotonic() + WAIT_SECONDS
        while line is not None:
            for namespace, datum in metric_data(line):
                data.setdefault(namespace, []).append(datum)
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
        return True

    def _put(self, namespace: str, metrics: list[dict[str, Any]]) -> None:
        try:
            self._cloudwatch.put_metric_data(Namespace=namespace, MetricData=metrics)
        except (ClientError, BotoCoreError) as exc:
            self.write("metrics", f"not put into {namespace}: {exc}\n".encode())


def metric_data(line: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (namespace, datum of PutMetricData) of a line in embedded metric format.

    A line in another format, or a metric without its value or dimension, yields nothing.
    """
    try:
        found = json.loads(line)
        directives = found["_aws"]["CloudWatchMetrics"]
        moment = datetime.fromtimestamp(found["_aws"]["Timestamp"] / 1000, UTC)
    except (ValueError, KeyError, TypeError):
        return
    for directive in directives:
        for names in directive.get("Dimensions") or [[]]:
            if not all(name in found for name in names):
                continue
            dimensions = [{"Name": name, "Value": str(found[name])} for name in names]
            for metric in directive["Metrics"]:
                if metric["Name"] not in found:
                    continue
                value = found[metric["Name"]]
                yield (
                    directive["Namespace"],
                    {
                        "MetricName": metric["Name"],
                        "Dimensions": dimensions,
                        "Timestamp": moment,
                        "Unit": metric.get("Unit", "None"),
                        "Values": value if isinstance(value, list) else [value],
                    },
                )
