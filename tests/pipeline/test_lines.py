"""Bytes to lines, lines to events: what is malformed, unreadable, or kept aside."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest
from fairbox_pipeline import lines
from fairbox_pipeline.lines import (
    EVENT,
    LINE_SCHEMA,
    MALFORMED,
    MalformedError,
    UnreadableFileError,
    batches_of,
    parse_event,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.writing import added, ended

URI = "file:/a/dt=2025-11-18/x.json.gz"

LEAST: dict[str, Any] = {
    "event": "added",
    "at": 1,
    "topic": "orders",
    "epoch": 0,
    "shard": 3,
    "id": "m",
    "event_id": "e",
}

NOTHING_HOLDS = (
    b"NaN",
    b"-Infinity",
    b"9" * 5000,
    b"1e999",
    b'"\\ud800"',
    b'"\0"',
    b'"\xed\xa0\x80"',
)


def raw(**changes: Any) -> bytes:
    return json.dumps(LEAST | changes).encode()


def rows_of(content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    batches = list(batches_of(URI, content))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def packed(*raws: bytes) -> bytes:
    return gzip.compress(b"".join(raw + b"\n" for raw in raws), 1, mtime=0)


def test_an_event_has_the_fields_of_its_line() -> None:
    assert parse_event(raw(size=7, headers={"a": "b"})) == LEAST | {
        "size": 7,
        "headers": {"a": "b"},
    }


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"{",
        b"{} {}",
        b"[]",
        b"1",
        b'"text"',
        b"null",
        b"{'event': 1}",
        b"\xff",
        raw() + b"x",
        b"[" + raw() + b"]",
        *(raw()[:-1] + b',"x":' + value + b"}" for value in NOTHING_HOLDS),
    ],
)
def test_what_is_not_one_json_object_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedError, match="not one JSON object"):
        parse_event(line)


@pytest.mark.parametrize("name", list(LEAST))
def test_a_field_named_on_all_events_may_not_be_missing_or_null(name: str) -> None:
    with pytest.raises(MalformedError, match=f"{name} is null"):
        parse_event(raw(**{name: None}))
    with pytest.raises(MalformedError, match=f"{name} is missing"):
        parse_event(json.dumps({k: v for k, v in LEAST.items() if k != name}).encode())


@pytest.mark.parametrize("name", ["at", "epoch", "shard"])
@pytest.mark.parametrize("value", ["1", 1.0, True, [1], {}, lines.MOST + 1, -lines.MOST - 1, 2**64])
def test_what_should_be_an_integer_of_53_bits_must_be_one(name: str, value: Any) -> None:
    assert parse_event(raw(**{name: -lines.MOST}))[name] == -lines.MOST
    with pytest.raises(MalformedError, match=f"{name} is not an integer"):
        parse_event(raw(**{name: value}))


@pytest.mark.parametrize("name", ["event", "topic", "id", "event_id"])
@pytest.mark.parametrize("value", [5, True, [], {}])
def test_what_should_be_a_string_must_be_one(name: str, value: Any) -> None:
    with pytest.raises(MalformedError, match=f"{name} is not a string"):
        parse_event(raw(**{name: value}))


def test_an_event_that_is_none_of_the_eight_is_malformed() -> None:
    with pytest.raises(MalformedError, match="none of the eight"):
        parse_event(raw(event="exploded"))


def test_a_field_that_is_not_known_is_kept_aside() -> None:
    event = parse_event(raw(novel={"b": [1, None]}, also=1))
    assert json.loads(event["extra"]) == {"novel": {"b": [1, None]}, "also": 1}


@pytest.mark.parametrize("name", ["novel", "size"])
def test_numbers_of_fields_set_aside_keep_their_digits(name: str) -> None:
    numbers = b"[12345678901234567890123,-0,1.10,12345678901234567.89,1E5]"
    event = parse_event(raw()[:-1] + b', "%s": %s}' % (name.encode(), numbers))
    aside = event["changed" if name == "size" else "extra"]
    assert aside == f'{{"{name}":{numbers.decode()}}}'


@pytest.mark.parametrize("name", ["novel", "size", "headers"])
def test_fields_set_aside_are_nested_to_a_limit(name: str) -> None:
    def nested(levels: int) -> bytes:
        return raw()[:-1] + b', "%s": %s%s}' % (name.encode(), b"[" * levels, b"]" * levels)

    assert "[[[" in str(parse_event(nested(lines.DEEPEST)))
    for levels in (lines.DEEPEST + 1, 300, 1000):
        with pytest.raises(MalformedError, match=f"nested more than {lines.DEEPEST} deep"):
            parse_event(nested(levels))
    with pytest.raises(MalformedError, match="not one JSON object"):
        parse_event(nested(100_000))


def test_a_line_past_the_limit_is_malformed_and_its_beginning_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "LONGEST", 2 << 20)
    long, event = rows_of(packed(b"x" * (5 << 20), raw()))
    assert (long["line"], long["fault"], long["text"]) == (1, "longer than 2 MiB", "x" * (1 << 20))
    assert (event["line"], event["kind"]) == (2, EVENT)


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", "7"), ("size", 7.5), ("headers", []), ("headers", {"a": 1}), ("partition_key", 4)],
)
def test_a_known_field_of_another_type_is_set_aside_and_the_event_stays(
    name: str, value: Any
) -> None:
    event = parse_event(raw(**{name: value}))
    assert name not in event
    assert json.loads(event["changed"]) == {name: value}


def test_a_field_that_is_null_counts_as_absent() -> None:
    assert parse_event(raw(partition_key=None)) == LEAST


def expected(line: int, told: bytes) -> dict[str, Any]:
    """The row of one line, by `parse_event` alone."""
    row = dict.fromkeys(LINE_SCHEMA.names) | {"uri": URI, "line": line}
    try:
        row |= parse_event(told) | {"kind": EVENT}
    except MalformedError as exc:
        text, digest = told.decode("utf-8", "backslashreplace"), hashlib.sha256(told).hexdigest()
        return row | {"kind": MALFORMED, "fault": str(exc), "text": text, "digest": digest}
    row["headers"] = None if row["headers"] is None else list(row["headers"].items())
    return row


def check(*raws: bytes) -> None:
    assert rows_of(packed(*raws)) == [expected(n, told) for n, told in enumerate(raws, 1)]


def test_lines_are_numbered_from_one_over_members_and_the_last_needs_no_break() -> None:
    content = gzip.compress(raw() + b"\nbro\xffken") + gzip.compress(b" here\n" + raw(at=9))
    first, second, third = rows_of(content + b"\0" * 512)  # padding is no damage
    assert (first["line"], first["kind"]) == (1, EVENT)
    assert (second["line"], second["text"]) == (2, "bro\\xffken here")
    assert (third["line"], third["at"]) == (3, 9)


def test_a_line_of_ten_megabytes_is_one_line() -> None:
    long, short = rows_of(packed(raw(body="ü" * 5_000_000), raw()))
    assert long["body"] == "ü" * 5_000_000
    assert short["line"] == 2


WHOLE = packed(raw(), raw(at=2))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"\x1f", "Not a gzipped file"),
        (b"plain text", "Not a gzipped file"),
        (WHOLE[: len(WHOLE) // 2], "ended before the end-of-stream marker"),
        (WHOLE[:-8] + bytes(b ^ 1 for b in WHOLE[-8:-4]) + WHOLE[-4:], "CRC check failed"),
        (WHOLE[:10] + b"\x07" + WHOLE[11:], "Error -3"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_by_name(content: bytes, why: str) -> None:
    with pytest.raises(UnreadableFileError, match=f"^{URI} cannot be read, .*: .*{why}"):
        rows_of(content)


def test_lines_as_they_should_be_never_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [added(n) for n in range(3000)] + [ended("delivered", n) for n in range(3000)]
    monkeypatch.setattr(lines, "parse_event", None)  # nobody calls it
    rows = rows_of(packed(*(json.dumps(line).encode() for line in told)))
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
def test_any_line_beside_any_other_is_the_same_as_alone(told: list[bytes], plain: int) -> None:
    check(*[json.dumps(PLAIN).encode()] * plain, *told)
