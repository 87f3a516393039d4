"""Archives with planted faults, from a seed: files as Firehose leaves them, or worse."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox.model.epochs import shard_number

if TYPE_CHECKING:
    from pathlib import Path

START = 1_763_500_000_000  # 2025-11-18, 21:06:40 UTC
KEYS = ("", "a", "customer-42", "Zoë", "🦊", None, None)
SUBSCRIPTIONS = ("billing", "search", "mail")
MALFORMED = (
    b"",
    b"garbage",
    b'{"event":',
    b"[]",
    b'"added"',
    b"{} {}",
    b"{'event': 'added'}",
    b"\xff\xfe",
    b"null",
)


@dataclass
class Archive:
    """Lines by file name; `write` puts them into a folder."""

    files: dict[str, list[bytes]] = field(default_factory=dict)
    outstanding: list[dict[str, Any]] = field(default_factory=list)

    def lines(self) -> list[bytes]:
        return [line for lines in self.files.values() for line in lines]

    def write(self, folder: Path, names: list[str] | None = None) -> Path:
        for name in self.files if names is None else names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in self.files[name])))
        return folder

    def write_outstanding(self, file: Path) -> Path:
        file.write_text("".join(json.dumps(o) + "\n" for o in self.outstanding), encoding="utf-8")
        return file


def random_archive(seed: int, *, messages: int = 60, files: int = 6) -> Archive:
    """Make an archive of some messages: every state, faults of every kind, in any order."""
    rng = random.Random(seed)
    lines: list[bytes] = []
    archive = Archive()
    for number in range(messages):
        told = _Message(rng, number)
        lines += told.lines
        if told.held:
            archive.outstanding.append(told.key)
    lines += rng.choices(lines, k=len(lines) // 4)  # repetitions
    lines += rng.choices(MALFORMED, k=8)
    lines += [_broken(rng, line) for line in rng.choices(lines[:messages], k=12)]
    rng.shuffle(lines)
    names = [f"dt=2025-11-{18 + n % 3}/hour={n % 24:02}/stream-{n}.json.gz" for n in range(files)]
    archive.files = {name: [] for name in names}
    for line in lines:
        archive.files[rng.choice(names)].append(line)
    rng.shuffle(archive.outstanding)
    return archive


class _Message:
    """One message and all that is told of it."""

    def __init__(self, rng: random.Random, number: int) -> None:
        self._rng = rng
        topic = rng.choice(("orders", "emails", "Größe"))
        epoch = rng.choice((0, 0, 1)) if topic == "orders" else 0
        partition_key = rng.choice(KEYS)
        # a few ids stand on two topics, and a few in a shard that is not theirs
        id_ = f"0198f3c2-7d7e-7abc-8def-{number - (number % 10 == 0):012x}"
        shard = shard_number(id_ if partition_key is None else partition_key, 4)
        if rng.random() < 0.1:
            shard = rng.randrange(4)
        self.key = {"topic": topic, "epoch": epoch, "shard": shard, "id": id_}
        self.added_at = START + rng.randrange(3 * 86_400_000)
        self.lines: list[bytes] = []
        self.held = False
        if rng.random() < 0.95:
            self._added(partition_key)
        rng.choice(
            (self._all, self._all, self._all, self._some, self._nothing, self._dead, self._ended)
        )()

    def _tell(self, event: str, at: int, **fields: Any) -> None:
        told = {"event": event, "at": at, **self.key, **fields}
        # another process would write the same fields in another order
        told["event_id"] = f"{self._rng.getrandbits(64):x}:{event}"
        self.lines.append(json.dumps(told, ensure_ascii=False).encode())

    def _added(self, partition_key: str | None) -> None:
        rng = self._rng
        content: dict[str, Any] = {
            "partition_key": partition_key,
            "content_type": "application/json",
            "headers": {"h": "ü"} if rng.random() < 0.5 else {},
            "body": "x" * rng.randrange(20),
            "body_encoding": "utf-8",
            "size": rng.randrange(200_000),
            "ordering": "none" if self.key["topic"] == "emails" else "key",
        }
        if rng.random() < 0.1:
            content["size"] = "many"  # changed type: the event stays
        if rng.random() < 0.2:
            content["novel"] = {"of": [rng.randrange(9), None]}
        if rng.random() < 0.3:
            del content["partition_key"]
            content |= {"partition_key": partition_key} if partition_key is not None else {}
        self._tell("added", self.added_at, **content)

    def _delivered(self, subscription: str | None, after: int) -> None:
        fields = {"subscription": subscription, "destination": f"sqs:{subscription}", "attempt": 1}
        self._tell("delivered", self.added_at + after, **fields)

    def _all(self) -> None:
        names = self._rng.sample(SUBSCRIPTIONS, self._rng.randrange(1, 3))
        for name in names if self._rng.random() < 0.9 else [None]:
            for _ in range(self._rng.choice((1, 1, 1, 2, 3))):
                # some before they were added: clocks differ
                self._delivered(name, self._rng.randrange(-50, 5) * 1000)

    def _some(self) -> None:
        self._delivered("billing", 500)
        fields = {"subscription": "search", "destination": "sqs:search", "attempt": 1}
        self._tell("failed", self.added_at + 700, **fields, reason="timeout")
        self.held = self._rng.random() < 0.7
        if not self.held and self._rng.random() < 0.5:
            self._tell("cancelled", self.added_at + 800, subscription="search", reason="skipped")

    def _nothing(self) -> None:
        self.held = self._rng.random() < 0.7

    def _dead(self) -> None:
        fields = {"subscription": "billing", "destination": "sqs:b", "attempt": 10, "reason": "no"}
        self._tell("dead", self.added_at + 1000, **fields)
        if self._rng.random() < 0.6:
            self._tell("redriven", self.added_at + self._rng.choice((999, 1000, 1001)))
            if self._rng.random() < 0.5:
                self._delivered("billing", 5000)

    def _ended(self) -> None:
        self._tell(self._rng.choice(("cancelled", "purged", "expired")), self.added_at + 10)
        if self._rng.random() < 0.5:
            self._delivered("mail", 5)


def _broken(rng: random.Random, line: bytes) -> bytes:
    """Return a line of which one field named on all events is missing, null or of another type."""
    told = json.loads(line)
    told["event_id"] += "-broken"
    name = rng.choice(("event", "at", "topic", "epoch", "shard", "id", "event_id"))
    wrong = rng.choice(("missing", "null", "type"))
    if wrong == "missing":
        del told[name]
    elif wrong == "null":
        told[name] = None
    elif name == "event":
        told[name] = "exploded"
    else:
        told[name] = rng.choice(("1", 1.0, True, [1])) if name in ("at", "epoch", "shard") else 5
    return json.dumps(told).encode()
