"""Soak runs: growth, recovery and back-pressure, on synthetic series."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.model.ids import IdGenerator
from fairbox.testing import ManualClock

from local.accounting.account import Account, Finding
from local.accounting.evidence import Arrival, Evidence, load
from local.accounting.journal import Journal
from local.soak.flood import ACCEPTED, TOO_MANY, Flood, answered
from local.soak.latencies import Latency, delayed, latencies
from local.soak.memory import HOUR, MEGABYTE, Memory, Sampler, memories, resident
from local.soak.phases import SHARES, Phase
from local.soak.trends import Trend, trend
from local.soak.verdict import Bounds, Result, faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOUNDS = Bounds()


def noisy(slope: float, *, seed: int, noise: float = 1.0, points: int = 200) -> list[Any]:
    rng = random.Random(seed)
    return [(n / points, 50 + slope * n / points + rng.gauss(0, noise)) for n in range(points)]


@pytest.mark.parametrize("seed", range(20))
def test_a_series_that_does_not_rise_has_no_slope_that_is_sure(seed: int) -> None:
    found = trend([noisy(0, seed=seed), noisy(0, seed=seed + 100)])
    assert found is not None
    assert found.low <= 0 <= found.high


@pytest.mark.parametrize("seed", range(20))
def test_a_series_that_rises_is_seen_to_beside_outliers_and_a_step_between_phases(
    seed: int,
) -> None:
    rng = random.Random(seed)
    first, second = noisy(10, seed=seed), noisy(10, seed=seed + 100)
    for points in (first, second):
        for n in rng.sample(range(len(points)), 20):
            points[n] = (points[n][0], points[n][1] + 500)
    found = trend([first, [(x + 2, y - 40) for x, y in second]])
    assert found is not None
    assert 0 < found.low < 10 < found.high
    assert found.slope == pytest.approx(10, abs=3)


def test_a_step_between_two_phases_is_no_slope() -> None:
    found = trend([noisy(0, seed=1), [(x + 2, y + 400) for x, y in noisy(0, seed=2)]])
    assert found is not None
    assert found.low <= 0 <= found.high
    assert trend([[(0.0, 1.0), (1.0, 2.0)], []]) is None


def test_a_constant_series_rises_by_nothing() -> None:
    assert trend([[(float(n), 7.0) for n in range(30)]]) == Trend(0.0, 0.0, 0.0)


def test_a_phase_measures_from_its_begin_until_before_its_end() -> None:
    assert sum(SHARES.values()) == pytest.approx(1)
    phase = Phase(10.0, 20.0)
    assert [phase.measures(at) for at in (9.9, 10.0, 19.9, 20.0)] == [False, True, True, False]
    assert phase.seconds == 10


def test_memory_is_read_of_processes_that_live() -> None:
    own = resident(os.getpid())
    assert own is not None
    assert own > MEGABYTE
    assert resident(2**22 + 1) is None


def test_the_sampler_keeps_a_series_of_each_process() -> None:
    now = [0.0]
    pids = [("a", os.getpid()), ("gone", 2**22 + 1)]
    sampler = Sampler(lambda: pids, 1.0, clock=lambda: now[0])
    for _ in range(3):
        sampler.sample()
        now[0] += 1
    series = sampler.series()
    assert list(series) == [("a", os.getpid())]
    assert [at for at, _ in series["a", os.getpid()]] == [0, 1, 2]


def test_growth_is_told_in_megabytes_an_hour_and_the_overload_is_left_out() -> None:
    phases = {
        "steady": Phase(0.0, 1500.0),
        "overload": Phase(1500.0, 2000.0),
        "recovered": Phase(2000.0, HOUR),
    }
    leak, burst = [], []
    for second in range(0, 3600, 10):
        leak.append((float(second), MEGABYTE * (50 + 30 * second / HOUR)))
        size = 200 if phases["overload"].measures(second) else 50
        burst.append((float(second), float(MEGABYTE * size)))
    found = {one.name: one for one in memories({("leak", 1): leak, ("burst", 2): burst}, phases)}
    assert found["leak"].growth is not None
    assert found["leak"].growth.slope == pytest.approx(30)
    assert found["burst"].growth == Trend(0.0, 0.0, 0.0)
    assert (found["burst"].ratio, found["burst"].most) == (1.0, 200)


def test_latency_is_that_of_what_was_published_in_a_phase() -> None:
    phases = {
        "steady": Phase(1015.0, 1055.0),
        "overload": Phase(1055.0, 1070.0),
        "recovered": Phase(1070.0, 1100.0),
    }
    clock = ManualClock(1000.0)
    ids = IdGenerator(clock)
    found = Evidence()
    ahead = 0.0
    for n, (at, took) in enumerate([(1010, 9.0), (1016, 1.0), (1017, 3.0), (1081, 7.0)]):
        clock.set(at)
        name, id_ = f"m{n}", ids.next()
        found.acked[name] = id_
        arrivals = [Arrival(id_, 0, int((at + took + again) * 1e9)) for again in (5, 0)]
        found.arrivals["t", "taker", name] = arrivals
    found.acked["late"] = ids.next()
    found.arrivals["t", "taker", "late"] = [Arrival(ids.next(), 0, int(2000e9))]
    shown = latencies(found, phases, ahead=ahead, but={"late"})
    steady, recovery = shown["steady"], shown["recovered"]
    assert steady is not None
    assert recovery is not None
    assert (steady.count, steady.p50, steady.p99) == pytest.approx((2, 2.0, 3.0), abs=0.01)
    assert (recovery.count, recovery.p50) == pytest.approx((1, 7.0), abs=0.01)
    assert shown["overload"] is None
    behind = latencies(found, phases, ahead=1000.0, but={"late"})["steady"]
    assert behind is None


def test_what_is_to_come_later_is_no_latency(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "producers" / "p.jsonl")
    id_ = IdGenerator(ManualClock()).next()
    journal.write(t="ok", n="now", topic="t", ref=f"t/0/1/{id_}")
    journal.write(t="ok", n="later", topic="t", ref=f"t/0/1/{id_}/1760000005000")
    journal.close()
    assert delayed(tmp_path) == {"later"}


def good() -> Result:
    latency = {"steady": Latency(50, 0.5, 2.0), "recovered": Latency(50, 0.6, 2.0)}
    memory = [Memory("function Relay", 7, Trend(1.0, -9.0, 11.0), 60.0, 66.0, 80.0)]
    answers = Counter({(202, False): 100, (429, True): 400})
    return Result(account=Account(), memory=memory, latency=latency, draining=3.0, answers=answers)


def test_a_good_run_has_no_faults_and_says_how_much_was_offered() -> None:
    assert faults(good(), BOUNDS) == []
    assert good().offered == 5
    assert good().recovered == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"account": Account(findings=[Finding("lost", "t", "taker", "m1")])}, "lost t taker m1"),
        (
            {"memory": [Memory("f", 7, Trend(40.0, 25.0, 60.0), 60.0, 66.0, 80.0)]},
            "f (process 7) grows by 25 MB an hour at least, over 24",
        ),
        (
            {"memory": [Memory("f", 7, Trend(0.0, 0.0, 0.0), 60.0, 180.0, 180.0)]},
            "f (process 7) kept 3.0 times its memory",
        ),
        (
            {"memory": [Memory("f", 7, None, None, None, 1.0)]},
            "no process lived long enough to tell whether its memory is flat",
        ),
        (
            {"latency": {"steady": Latency(9, 0.5, 1), "recovered": Latency(9, 2.0, 3)}},
            "latency stayed 4.0 times what it was before the overload",
        ),
        (
            {"latency": {"steady": Latency(9, 0.5, 1), "recovered": None}},
            "nothing was delivered before the overload, or nothing after it",
        ),
        ({"answers": Counter({(202, False): 9})}, "the overload was none: nobody was answered 429"),
        (
            {"answers": Counter({(429, True): 9})},
            "the overload was a wall: nobody was answered 202",
        ),
        (
            {"answers": Counter({(202, False): 9, (429, True): 9, (429, False): 2})},
            "2 answers 429 did not say when to come again",
        ),
        (
            {"answers": Counter({(202, False): 9, (429, True): 9, (500, False): 1})},
            "1 answers 500",
        ),
    ],
)
def test_what_must_not_be_is_told(changes: dict[str, Any], told: str) -> None:
    assert faults(replace(good(), **changes), BOUNDS) == [told]


@pytest.fixture
def stubborn() -> Iterator[str]:
    """An API that refuses each caller twice before it takes a message."""
    asked: Counter[str] = Counter()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            with lock:
                asked[body] += 1
                status = TOO_MANY if asked[body] <= 2 else ACCEPTED
            id_ = "019a0000-0000-7000-8000-000000000000"
            text = b'{"refs": ["chaos.queued/0/0/%s"]}' % id_.encode()
            self.send_response(status)
            if status == TOO_MANY:
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_callers_ask_again_for_the_same_message_and_only_what_is_taken_is_acknowledged(
    stubborn: str, tmp_path: Path
) -> None:
    journals = tmp_path / "journals"
    journal = Journal(journals / "producers" / "flood.jsonl")
    answers = Journal(tmp_path / "answers.jsonl")
    flood = Flood(stubborn, journal, answers, "seed")
    threading.Timer(1.5, flood.stop).start()
    flood.run(3)
    journal.close()
    answers.close()
    counts = answered(tmp_path / "answers.jsonl")
    found = load(tmp_path)
    taken = counts[ACCEPTED, False]
    assert taken > 0
    assert set(counts) == {(ACCEPTED, False), (TOO_MANY, True)}
    assert len(found.acked) == taken
    assert set(found.acked) <= set(found.tries)
    assert len(found.tries) - taken <= 3  # each caller may stop with one in hand
    assert 2 * taken <= counts[TOO_MANY, True] <= 2 * len(found.tries)
