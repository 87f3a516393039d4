"""An archive of any size for the benchmark of the pipeline: like a real one, with repetitions."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING, Final

from fairbox.model.epochs import shard_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START: Final = 1_763_500_000_000
LINES_A_FILE: Final = 50_000  # 20 MB of JSON, some 3 MB in gzip: what Firehose writes in a minute
TOPICS: Final = ("orders", "emails", "invoices", "shipments")
SHARDS: Final = 8
REPEATED: Final = 0.05
LATE: Final = 2_000  # lines by which one may come too late


def write_archive(folder: Path, events: int, seed: int = 1) -> None:
    """Write so many lines: half `added`, half `delivered`, some of them repeated."""
    rng = random.Random(seed)
    lines = _late(_lines(events, rng), rng)
    for number in range(0, events, LINES_A_FILE):
        hour = number // LINES_A_FILE
        file = folder / f"dt=2025-11-{18 + hour // 24 % 12}/hour={hour % 24:02}/f{number}.json.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wb", compresslevel=1) as opened:
            for _, line in zip(range(min(LINES_A_FILE, events - number)), lines, strict=False):
                opened.write(line)


def _late(lines: Iterator[bytes], rng: random.Random) -> Iterator[bytes]:
    """Shuffle lines, each by a few thousand places at most."""
    held: list[bytes] = []
    for line in lines:
        held.append(line)
        if len(held) > LATE:
            place = rng.randrange(LATE)
            held[place], held[-1] = held[-1], held[place]
            yield held.pop()
    yield from held


def _lines(events: int, rng: random.Random) -> Iterator[bytes]:
    """Yield two lines for each message, some of them twice."""
    body = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz      ", k=4_000))
    made = number = 0
    while made < events:
        for line in _of_message(number, rng, body):
            copies = 2 if rng.random() < REPEATED else 1
            yield from [line] * copies
            made += copies
        number += 1


def _of_message(number: int, rng: random.Random, body: str) -> tuple[bytes, bytes]:
    at = START + number * 10
    partition_key = f"customer-{rng.randrange(10_000)}"
    id_ = f"{at >> 16:08x}-{at & 0xFFFF:04x}-7{rng.randrange(4096):03x}-8000-{number:012x}"
    begin = rng.randrange(3_000)
    common = (
        f'"topic":"{TOPICS[number % 4]}","epoch":0,'
        f'"shard":{shard_number(partition_key, SHARDS)},"id":"{id_}"'
    )
    added = (
        f'{{"event":"added","at":{at},{common},"event_id":"{number:032x}:added",'
        f'"partition_key":"{partition_key}","content_type":"application/json",'
        f'"headers":{{"traceparent":"00-{number:032x}-01"}},"size":500,"batch_item":null,'
        f'"ordering":"key","body":"{body[begin : begin + 500]}","body_encoding":"utf-8"}}\n'
    )
    delivered = (
        f'{{"event":"delivered","at":{at + rng.randrange(20, 3_000)},{common},'
        f'"event_id":"{number:032x}:delivered:billing","subscription":"billing",'
        f'"destination":"sqs:billing","attempt":1}}\n'
    )
    return added.encode(), delivered.encode()
