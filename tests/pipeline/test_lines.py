"""Bytes to lines, lines to events: what is malformed, what is damaged, what is kept aside."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from fairbox_pipeline import lines
from fairbox_pipeline.lines import Line, MalformedError, parse_event, read_lines, readable

EVENT: dict[str, Any] = {
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
    return json.dumps(EVENT | changes).encode()


def lines_of(content: bytes) -> list[Line]:
    return list(read_lines(content))


def test_an_event_has_the_fields_of_its_line() -> None:
    assert parse_event(raw(size=7, headers={"a": "b"})) == EVENT | {
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


@pytest.mark.parametrize("name", list(EVENT))
def test_a_field_named_on_all_events_may_not_be_missing_or_null(name: str) -> None:
    with pytest.raises(MalformedError, match=f"{name} is null"):
        parse_event(raw(**{name: None}))
    with pytest.raises(MalformedError, match=f"{name} is missing"):
        parse_event(json.dumps({k: v for k, v in EVENT.items() if k != name}).encode())


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
    long, event = lines_of(gzip.compress(b"x" * (5 << 20) + b"\n" + raw() + b"\n"))
    assert (long.number, long.reason, long.raw) == (1, "longer than 2 MiB", b"x" * (1 << 20))
    assert (event.number, event.event) == (2, EVENT)


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
    assert parse_event(raw(partition_key=None)) == EVENT


def test_lines_are_numbered_from_one_over_members_and_the_last_needs_no_break() -> None:
    content = gzip.compress(raw() + b"\nbroken") + gzip.compress(b" here\n" + raw(at=9))
    first, second, third = lines_of(content)
    assert (first.number, first.event) == (1, EVENT)
    assert (second.number, second.raw, second.cut) == (2, b"broken here", False)
    assert (third.number, third.event) == (3, EVENT | {"at": 9})


def test_a_line_of_ten_megabytes_is_one_line() -> None:
    body = "ü" * 5_000_000
    content = gzip.compress(raw(body=body) + b"\n" + raw() + b"\n", 1)
    long, short = lines_of(content)
    assert long.event == EVENT | {"body": body}
    assert short.number == 2


def test_a_file_cut_short_gives_what_can_be_read_and_is_named_damaged() -> None:
    # stored, not compressed: where the file is cut is where the text is cut
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    whole = packer.compress(raw() + b"\n" + raw(at=2) + b"\n" + raw(at=3) + b"\n") + packer.flush()
    cut = whole[: whole.index(b'"at": 3')]
    *events, fragment, damage = lines_of(cut)
    assert [line.event for line in events] == [EVENT, EVENT | {"at": 2}]
    assert (fragment.number, fragment.cut) == (3, True)
    assert fragment.reason is not None
    assert fragment.reason.startswith("the file ends inside this line")
    assert damage == Line(3, reason="the gzip stream ends before its end")


def test_a_file_that_breaks_in_the_middle_is_named_with_zlibs_reason() -> None:
    content = gzip.compress(raw() + b"\n")
    wrong_sum = content[:-8] + bytes(b ^ 1 for b in content[-8:-4]) + content[-4:]
    event, damage = lines_of(wrong_sum)
    assert event.event == EVENT
    assert damage.reason is not None
    assert "incorrect data check" in damage.reason


@pytest.mark.parametrize("content", [b"", b"\x1f", b"plain text"])
def test_what_is_no_gzip_file_is_damaged_and_has_no_line(content: bytes) -> None:
    (damage,) = lines_of(content)
    assert damage.raw is None
    assert damage.number == 0


def test_padding_after_the_last_member_is_no_damage() -> None:
    (line,) = lines_of(gzip.compress(raw() + b"\n") + b"\0" * 512)
    assert line.event == EVENT


def test_bytes_that_are_not_utf_8_stay_readable() -> None:
    assert readable(b"a\xff\xc3\xbc") == "a\\xff\u00fc"
