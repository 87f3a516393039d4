"""A release's fixtures as files: what it stored and sent, and how it read that itself."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import tomllib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.sqs_queues import decode, encode
from fairbox.batches.ack_messages import pack
from fairbox.dispatch.ports import Doorbell
from fairbox.model.messages import MessageRef
from fairbox.model.receipts import Receipt
from fairbox.tables.batch_records import read_record
from fairbox.tables.dead_letters import read_dead
from fairbox.tables.deferred_keys import read_deferred
from fairbox.tables.hints import SHARDS_A_ROW, read_hint
from fairbox.tables.key_claims import read_claims
from fairbox.tables.ledger import read_ledger
from fairbox.tables.shard_rows import is_shard_row, read_shard
from fairbox.tables.stored_messages import read_message
from fairbox.tables.stream_records import image_item
from fairbox.tables.stream_records import read_record as read_change
from fairbox.tables.topic_rows import read_topics
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX
from fairbox.testing.streams import lambda_item

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.releases.world import World

ROOT: Final = Path(__file__).resolve().parent.parent.parent
RELEASES: Final = ROOT / "tests/fixtures/releases"
CHECKSUMS: Final = "SHA256SUMS"
FORMER_NAMES: Final = {
    "Hint.next_check": "look_at",
    "KeysAside.next_check": "look",
    "Root.next_check": "look",
    "ShardRow.next_check": "look_at",
    "TopicState.statuses": "standings",
}
"""Fields by the names under which the fixtures have them."""
TABLES: Final = (OUTBOX, DELIVERIES, BATCHES)
SETTINGS: Final = {
    "FAIRBOX_OUTBOX_TABLE": "outbox",
    "FAIRBOX_DELIVERIES_TABLE": "deliveries",
    "FAIRBOX_BATCHES_TABLE": "batches",
    "FAIRBOX_ACK_QUEUE_URL": "https://sqs.example/acks",
    "FAIRBOX_BODIES_BUCKET": "bodies",
    "FAIRBOX_DOORBELL_QUEUE_URL": "https://sqs.example/doorbells.fifo",
    "FAIRBOX_LATER_QUEUE_URL": "https://sqs.example/later",
    "FAIRBOX_ARCHIVE_STREAM": "archive",
    "FAIRBOX_FAILURES_BUCKET": "failures",
    "FAIRBOX_WEBHOOK_ALLOW_PRIVATE": "true",
    "FAIRBOX_WEBHOOK_SECRETS": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:a",
    "FAIRBOX_OPEN_BATCH_DAYS": "8",
    "FAIRBOX_SEALED_BATCH_DAYS": "15",
    "FAIRBOX_STALLED_BATCH_HOURS": "25",
    "FAIRBOX_CLEAN_ORPHANS_DRY_RUN": "false",
}


def version() -> str:
    """Return the version of the library in this tree."""
    text = (ROOT / "layers/fairbox/pyproject.toml").read_text()
    return str(tomllib.loads(text)["project"]["version"])


def contents(world: World) -> dict[str, Any]:
    """Return what a release's folder holds, by file name, as JSON has it."""
    app = world.app
    tables = {
        name: sorted(
            (lambda_item(item) for item in app.engine.items(name)),
            key=lambda item: (item["pk"]["S"], item["sk"]["S"]),
        )
        for name in TABLES
    }
    unread = app.records(world.after)
    batch_records = [r for r in app.engine.stream(BATCHES).take() if _tells(r)]
    files: dict[str, Any] = {
        "tables.json": tables,
        "streams.json": {OUTBOX: unread, BATCHES: batch_records},
        "messages.json": _messages(world),
        "archive.json": [json.loads(line) for line in app.archive.lines if len(line) < 10_000],
        "bodies.json": {
            name: base64.b64encode(zlib.compress(body, 9)).decode()
            for name, body in app.bodies.objects.items()
        },
        "settings.json": SETTINGS,
        "world.json": {
            "now": app.clock.now(),
            "sequence": app.engine.stream(OUTBOX).take()[-1]["dynamodb"]["SequenceNumber"],
            "batches": world.batches,
            "items": world.items,
        },
    }
    return files | {"expected.json": models(files)}


def _tells(record: Mapping[str, Any]) -> bool:
    return bool(record["dynamodb"].get("NewImage", {}).get("n") == {"N": "0"})


def _messages(world: World) -> dict[str, Any]:
    refs = [MessageRef.parse(f"orders/0/0/{world.app.ids.next()}")]
    doorbells = [
        Doorbell("orders", 0, 1),
        Doorbell("orders", 0, 0, tuple(refs)),
        Doorbell("payments", 0, 0, (), 1_760_000_900_000, 1_760_000_900_000),
    ]
    return {
        "doorbells": [encode(doorbell) for doorbell in doorbells],
        "acks": pack(world.items["open"][2:]),
        "receipts": world.receipts,
    }


def models(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return how this tree reads a release's files: models as JSON, by what they are."""
    tables = {name: [image_item(i) for i in items] for name, items in files["tables.json"].items()}
    messages = files["messages.json"]
    topics = [
        i for i in tables[OUTBOX] if i["pk"]["S"] == "config" and i["sk"]["S"].startswith("topic#")
    ]
    receipts = [r for own in messages["receipts"].values() for r in own]
    streams = files["streams.json"]
    return {
        "outbox": dict(_outbox(tables[OUTBOX])),
        "topics": plain(read_topics(topics)),
        "deliveries": dict(_deliveries(tables[DELIVERIES])),
        "batches": {_name(i): plain(read_record(i)) for i in tables[BATCHES]},
        "changes": [plain(read_change(r)) for r in streams[OUTBOX]],
        "doorbells": [plain(decode(text)) for text in messages["doorbells"]],
        "receipts": [plain(Receipt.parse(text)) for text in receipts],
    }


def _name(item: Mapping[str, Any]) -> str:
    return f"{item['pk']['S']} {item['sk']['S']}"


def _outbox(items: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for item in items:
        lane = item["pk"]["S"].split("#")[0]
        if is_shard_row(item):
            row = {"row": read_shard(item), "held": read_claims(item), "holds": read_deferred(item)}
            yield _name(item), {name: plain(model) for name, model in row.items()}
        elif lane in ("ready", "later"):
            yield _name(item), plain(read_message(item))
        elif lane == "hint":
            yield _name(item), [plain(read_hint(item, shard)) for shard in range(SHARDS_A_ROW)]


def _deliveries(items: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for item in items:
        kind = item["pk"]["S"].split("#")[0]
        if kind == "dead":
            yield _name(item), plain(read_dead(item))
        elif kind == "ledger":
            yield _name(item), plain(list(read_ledger(item)))


def plain(value: Any) -> Any:
    """Return a model as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        # what a release did not know it does not speak of
        names = [field.name for field in dataclasses.fields(value) if field.name != "unknown"]
        return {
            FORMER_NAMES.get(f"{kind}.{name}", name): plain(getattr(value, name)) for name in names
        }
    if hasattr(value, "items"):
        return {str(name): plain(one) for name, one in sorted(value.items())}
    if isinstance(value, frozenset | set):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest() if len(value) > 100 else value.hex()
    return str(value) if isinstance(value, int) and abs(value) > 1 << 53 else value


def text_of(content: Any) -> str:
    """Return a file's text."""
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def checksums(folder: Path) -> str:
    """Return a line for each file of a release, as `sha256sum` writes it."""
    files = sorted(p for p in folder.iterdir() if p.name != CHECKSUMS)
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)


def shapes(files: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """Return (kind of item, attribute, type) of all that a release's tables hold."""
    found: set[tuple[str, str, str]] = set()
    for table, items in files["tables.json"].items():
        for item in items:
            pk, sk = item["pk"]["S"], item["sk"]["S"]
            kind = sk.split("#")[0] if table == BATCHES else pk.split("#")[0]
            if pk == "config" or sk == "!":
                kind = f"{kind} {len(sk.split('#'))}"
            # a hint row has attributes by shard
            rows = {n.rstrip("0123456789") if kind == "hint" else n: v for n, v in item.items()}
            found |= {(f"{table} {kind}", name, *value) for name, value in rows.items()}
    return found


def load(folder: Path) -> dict[str, Any]:
    """Return a release's files by name."""
    return {p.name: json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))}
