"""The archive through Firehose and past it: nothing is lost, and nobody waits for a quota."""

from __future__ import annotations

import gzip
import json
import random
import string
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.aws.firehose_archive import MEMBER_BYTES, RECORD_BYTES, FirehoseArchive, pack
from fairbox.aws.s3_archive import WAITING, Moved, S3Archive
from fairbox.errors import Unavailable
from fairbox.testing import ManualClock
from fairbox_cdk.components.archive import PREFIX

from local.engines.firehose import expand_prefix, throttled
from tests.support.archive import (
    ARCHIVE,
    FAILURES,
    STREAM,
    Buckets,
    FirehoseClient,
    archived,
    moment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

NOON = 1_794_139_200.0  # 2026-11-08T12:00:00Z
HOUR = "dt=2026-11-08/hour=12/"


class Setup:
    """An archive over Firehose and buckets, with the figures that it writes."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.buckets = Buckets()
        self.firehose = FirehoseClient(self.buckets, moment(self.clock))
        self.figures: Counter[str] = Counter()
        self.objects = S3Archive(
            lambda: self.buckets, ARCHIVE, FAILURES, self.clock, self.figures.update
        )
        self.archive = self.process()

    def process(self) -> FirehoseArchive:
        """Return the archive of a fresh process."""
        return FirehoseArchive(
            self.firehose, STREAM, self.clock, objects=self.objects, emit=self.figures.update
        )

    def archived(self) -> Counter[str]:
        """Return how often the archive has each event, after Firehose has written all."""
        self.firehose.service.flush()
        return Counter(line["event_id"] for line in archived(self.buckets))

    def throttle(self, refuse: Callable[[int], Collection[int]]) -> None:
        self.firehose.service.throttle = refuse


@pytest.fixture
def made() -> Setup:
    return Setup()


def lines(count: int, *, start: int = 0, size: int = 300) -> list[bytes]:
    return [
        b'{"event_id":"event-%d","body":"%s"}' % (n, b"a body " * (size // 7))
        for n in range(start, start + count)
    ]


def refuse_all(_: int) -> Collection[int]:
    raise throttled()


def every_other(count: int) -> Collection[int]:
    return range(0, count, 2)


class Flapping:
    """Refuses a call, then a part of one, then nothing, and so on."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, count: int) -> Collection[int]:
        self._calls += 1
        if self._calls % 3 == 1:
            raise throttled()
        return range(self._calls % 3 - 1, count, 2) if self._calls % 3 == 2 else ()


def test_lines_are_put_as_gzip_members_that_make_one_file(made: Setup) -> None:
    for start in (0, 3000):
        made.archive.write(lines(3000, start=start, size=1000))
    made.firehose.service.flush()
    (key,) = made.buckets.keys(ARCHIVE)
    assert key.startswith(f"archive/{HOUR}")
    content = made.buckets.objects[ARCHIVE, key]
    assert content.count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00") > 2
    assert gzip.decompress(content).splitlines() == lines(6000, size=1000)
    assert made.figures == {}


def test_the_same_lines_give_the_same_bytes(made: Setup) -> None:
    made.clock.advance(1000)
    assert pack(lines(10)) == pack(lines(10))


@pytest.mark.parametrize("size", [100, 1_000, 700_000, 900_000, 999_990])
def test_a_member_fits_a_record_even_if_nothing_can_be_compressed(size: int) -> None:
    rng = random.Random(7)
    noise = [rng.randbytes(size).replace(b"\n", b" ") for _ in range(2_000_000 // size + 1)]
    members = pack(noise[:3000])
    assert max(len(member) for member in members) <= RECORD_BYTES
    assert sum(member.lines for member in members) == len(noise[:3000])
    assert all(len(gzip.decompress(member.data)) <= MEMBER_BYTES + 1 for member in members)


def test_a_line_that_fits_no_record_goes_past_firehose(made: Setup) -> None:
    body = "".join(random.Random(2).choices(string.digits + string.ascii_letters, k=1_450_000))
    long = json.dumps({"event_id": "long", "body": body}).encode()
    made.archive.write([*lines(1), long, *lines(1, start=1)])
    assert made.archived() == {"event-0": 1, "event-1": 1, "long": 1}
    assert made.figures["ArchiveBypassed"] == 1


@pytest.mark.guarantee("archive-after-repair")
@pytest.mark.parametrize(
    "refuse",
    [refuse_all, range, every_other, Flapping()],
    ids=["calls", "records", "half", "flapping"],
)
def test_ten_thousand_lines_are_archived_whatever_firehose_throttles(
    made: Setup, refuse: Callable[[int], Collection[int]]
) -> None:
    made.throttle(refuse)
    for start in range(0, 10_000, 1000):
        made.archive.write(lines(1000, start=start, size=4000))
    assert made.archived() == {f"event-{n}": 1 for n in range(10_000)}
    assert made.figures["ArchiveWaiting"] == 0
    assert made.clock.now() - NOON <= 10 * 0.21  # nobody waits longer than for a second try
    direct = [key for key in made.buckets.keys(ARCHIVE) if "/direct-" in key]
    assert len(direct) <= 10  # an object an invocation at most


def test_what_is_put_past_firehose_lies_in_the_hour_s_folder_as_firehose_names_it(
    made: Setup,
) -> None:
    made.throttle(refuse_all)
    made.archive.write(lines(10))
    (key,) = made.buckets.keys(ARCHIVE)
    assert key.startswith(expand_prefix(PREFIX, moment(made.clock)()) + "direct-")
    assert key.endswith(".json.gz")
    assert made.figures == {"ArchiveBypassed": 10}


def test_a_repetition_within_the_hour_replaces_what_was_put_past_firehose(made: Setup) -> None:
    made.throttle(refuse_all)
    for _ in range(3):
        made.process().write(lines(10))
    assert made.archived() == {f"event-{n}": 1 for n in range(10)}


def test_a_kill_between_a_put_and_its_answer_makes_a_repetition_only(made: Setup) -> None:
    made.throttle(refuse_all)
    made.buckets.lost = 1
    with pytest.raises(KeyboardInterrupt):
        made.archive.write(lines(10))
    made.throttle(lambda _: ())
    made.process().write(lines(10))  # the batch comes again
    assert made.archived() == {f"event-{n}": 2 for n in range(10)}


def test_lines_whose_answer_is_lost_are_put_past_firehose_which_is_then_left_alone(
    made: Setup,
) -> None:
    made.firehose.silent = True
    for start in (0, 10):
        made.archive.write(lines(10, start=start))
    assert made.firehose.calls == 1
    assert made.archived() == {f"event-{n}": 2 if n < 10 else 1 for n in range(20)}
    made.firehose.silent = False
    made.clock.advance(60)
    made.archive.write(lines(10, start=20))
    assert made.figures["ArchiveBypassed"] == 20
    assert len(made.archived()) == 30


def test_what_neither_takes_waits_in_the_failures_bucket_and_is_counted(made: Setup) -> None:
    made.throttle(refuse_all)
    made.buckets.refusing.add(ARCHIVE)
    made.archive.write(lines(10))
    (key,) = made.buckets.keys(FAILURES)
    assert key.startswith(f"{WAITING}{HOUR}direct-")
    assert made.figures["ArchiveWaiting"] == 1
    assert made.archived() == {}


def test_an_invocation_fails_only_if_nobody_takes_its_lines(made: Setup) -> None:
    made.throttle(refuse_all)
    made.buckets.refusing |= {ARCHIVE, FAILURES}
    with pytest.raises(Unavailable):
        made.archive.write(lines(10))
    assert made.clock.now() - NOON <= 1
    made.buckets.refusing.clear()
    made.process().write(lines(10))
    assert made.archived() == {f"event-{n}": 1 for n in range(10)}


def test_what_waits_is_moved_to_where_it_would_have_been(made: Setup) -> None:
    waiting(made, 3)
    made.clock.advance(5 * 3600)
    assert made.objects.move_waiting(deadline=made.clock.now() + 60) == Moved(3, 0)
    assert made.buckets.keys(FAILURES) == []
    assert all(key.startswith(f"archive/{HOUR}direct-") for key in made.buckets.keys(ARCHIVE))
    assert made.archived() == {f"event-{n}": 1 for n in range(30)}
    assert made.figures["ArchiveWaiting"] == 3


@pytest.mark.parametrize("count", [1, 12])
def test_objects_that_cannot_be_moved_do_not_stop_the_others(made: Setup, count: int) -> None:
    waiting(made, 30)
    bad = made.buckets.keys(FAILURES)[4 : 4 + count]
    made.buckets.refusing |= {(FAILURES, key) for key in bad}
    made.figures.clear()
    assert made.objects.move_waiting(deadline=made.clock.now() + 60) == Moved(30 - count, count)
    assert made.buckets.keys(FAILURES) == bad
    assert made.figures["ArchiveWaiting"] == count


def test_while_the_archive_s_bucket_refuses_a_run_stops_after_ten(made: Setup) -> None:
    waiting(made, 1100)
    made.buckets.refusing.add(ARCHIVE)
    made.buckets.puts = 0
    made.figures.clear()
    assert made.objects.move_waiting(deadline=made.clock.now() + 60) == Moved(0, 1100)
    assert made.buckets.puts == 20
    assert made.figures["ArchiveWaiting"] == 1100


def test_a_move_ends_at_its_deadline(made: Setup) -> None:
    waiting(made, 3)
    assert made.objects.move_waiting(deadline=made.clock.now()) == Moved(0, 3)


def test_a_kill_between_a_move_s_put_and_delete_makes_nothing_of_it(made: Setup) -> None:
    waiting(made, 2)
    made.buckets.lost = 1
    with pytest.raises(KeyboardInterrupt):
        made.objects.move_waiting(deadline=made.clock.now() + 60)
    assert made.objects.move_waiting(deadline=made.clock.now() + 60) == Moved(2, 0)
    assert made.archived() == {f"event-{n}": 1 for n in range(20)}


def waiting(made: Setup, objects: int) -> None:
    """Let objects of ten lines wait, and the archive's bucket take objects again."""
    made.throttle(refuse_all)
    made.buckets.refusing.add(ARCHIVE)
    for number in range(objects):
        made.archive.write(lines(10, start=10 * number))
    made.buckets.refusing.clear()


def loss(made: Setup, archive: Any, batches: Sequence[Sequence[bytes]]) -> int:
    """Return how many lines are missing after everything has failed in turn and been repaired."""
    faults: list[tuple[Callable[[int], Collection[int]], set[str | tuple[str, str]]]] = [
        (refuse_all, set()),
        (every_other, {ARCHIVE}),
        (refuse_all, {ARCHIVE}),
        (Flapping(), set()),
        (lambda _: (), {ARCHIVE}),
    ]
    for number, batch in enumerate(batches):
        refuse, refusing = faults[number % len(faults)]
        made.throttle(refuse)
        made.buckets.refusing |= refusing
        archive.write(batch)
        made.buckets.refusing.clear()
    made.objects.move_waiting(deadline=made.clock.now() + 60)
    wanted = {json.loads(line)["event_id"] for batch in batches for line in batch}
    return len(wanted - set(made.archived()))


BATCHES = [lines(200, start=start, size=20_000) for start in range(0, 2_000, 200)]


@pytest.mark.guarantee("archive-after-repair")
def test_nothing_is_missing_once_what_waits_has_been_moved(made: Setup) -> None:
    assert loss(made, made.archive, BATCHES) == 0
