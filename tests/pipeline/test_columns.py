"""Lines taken by the column are what they are one by one, whatever stands between them."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fairbox_pipeline import columns
from fairbox_pipeline.columns import DAMAGED, EVENT, LINE_SCHEMA, MALFORMED, batches_of
from fairbox_pipeline.lines import digest, lines_of, read_lines, readable
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.archives import random_archive
from tests.pipeline.writing import added, ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox_pipeline.lines import Line

URI = "file:/a/dt=2025-11-18/x.json.gz"


def packed(raws: Sequence[bytes]) -> bytes:
    return gzip.compress(b"".join(raw + b"\n" for raw in raws), 1)


def expected(line: Line) -> dict[str, Any]:
    """The fields of one line."""
    row = dict.fromkeys(LINE_SCHEMA.names) | {"uri": URI, "line": line.number}
    if line.event is not None:
        row |= line.event | {"kind": EVENT}
        row["headers"] = None if row["headers"] is None else list(row["headers"].items())
        return row
    row |= {"kind": DAMAGED, "fault": line.reason, "cut": line.cut}
    if line.raw is not None:
        row |= {"kind": MALFORMED, "text": readable(line.raw), "digest": digest(line.raw)}
    return row


def taken(content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    batches = list(batches_of(URI, content))
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    if rows:
        assert list(rows[0]) == LINE_SCHEMA.names
    return rows


def check(content: bytes) -> None:
    lines = list(read_lines(content))
    assert taken(content) == [expected(line) for line in lines]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_archive_with_faults_of_every_kind_is_the_same_by_column(seed: int) -> None:
    raws = random_archive(seed, messages=900).lines()
    check(packed(raws))
    content = packed(raws)
    check(content[: len(content) // 2])


def test_lines_as_they_should_be_never_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [added(n) for n in range(3000)] + [ended("delivered", n) for n in range(3000)]
    content = packed([json.dumps(line).encode() for line in told])
    monkeypatch.setattr(columns, "lines_of", None)  # nobody calls it
    rows = taken(content)
    assert [row["line"] for row in rows] == list(range(1, 6001))
    assert {row["kind"] for row in rows} == {EVENT}
    assert rows[7]["headers"] == [("traceparent", "t7")]


PLAIN = {**added(1), "due": None}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**63) - 1, 1.0, 1e5, 0.5, -0.0]),
    st.text(max_size=3),
    st.sampled_from(["added", "expired", "Added"]),
    st.dictionaries(st.text(max_size=2), st.one_of(st.text(max_size=2), st.none(), st.integers())),
    st.lists(st.integers(), max_size=1),
)
CHANGED = st.dictionaries(
    st.sampled_from([*PLAIN, "subscription", "attempt", "novel", "kind", "line", "uri"]), VALUES
)
LINE = st.one_of(
    CHANGED.map(lambda change: json.dumps(PLAIN | change).encode()),
    CHANGED.map(lambda change: json.dumps(PLAIN | change, ensure_ascii=False).encode("utf-8")),
    st.sampled_from([*PLAIN]).map(
        lambda name: json.dumps({k: v for k, v in PLAIN.items() if k != name}).encode()
    ),
    st.binary(max_size=4).map(lambda junk: json.dumps(PLAIN).encode() + junk.replace(b"\n", b"")),
    st.sampled_from([b"", b"{}", b"[]", b"{} {}", b'{"at":1,"at":2}', b'{"id":"\\ud800"}']),
)


@given(st.lists(LINE, max_size=6), st.integers(0, 3))
def test_any_line_beside_any_other_is_the_same_by_column(lines: list[bytes], plain: int) -> None:
    check(packed([json.dumps(PLAIN).encode()] * plain + lines))


def test_a_line_that_is_not_as_it_should_be_does_not_touch_the_next_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raws = [json.dumps(added(n)).encode() for n in range(1000)]
    raws[random.Random(1).randrange(256, 512)] = b"broken"
    content = packed(raws)
    looked_at: list[int] = []
    one_by_one = lines_of

    def counted(chunk: Any) -> Any:
        looked_at.append(chunk.first)
        return one_by_one(chunk)

    monkeypatch.setattr(columns, "lines_of", counted)
    assert len(taken(content)) == 1000
    assert looked_at == [257]
