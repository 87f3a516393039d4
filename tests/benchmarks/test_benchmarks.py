"""The benchmarks: the shape of what they write, and the exact figures of cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from fairbox.testing import MemoryDynamoDB

from benchmarks import archive, batches, cost, queue, resize
from benchmarks.ack_workers import GROUP_SIZE, Plan
from benchmarks.baseline_004 import SeedBatches, definition
from benchmarks.batch_proof import prove
from benchmarks.batch_sizes import Shape
from benchmarks.deployment import Load
from benchmarks.figures import Figure, show, write
from benchmarks.latency import percentile
from benchmarks.queue_contention import Contention
from benchmarks.throughput import Run

if TYPE_CHECKING:
    from pathlib import Path

# name -> the most that it may be; the figures are counted, not timed
TARGETS = {
    "cost.wru_per_message.plain": 2.1,
    "cost.wru_per_message.transactional": 3.1,
    "cost.rru_per_message.unordered": 0.0,
    "cost.rru_per_message.ordered": 0.35,
    "cost.rru_per_message.ordered.worst_seed": 0.35,
    "cost.rru_per_invocation.relay": 1.0,
    "cost.calls_per_message": 0.1,
    "cost.sends_per_message": 0.1,
    "cost.idle_sweep_rru": 1.0,
}


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    found = cost.figures(slow=120, fast=20, burst=5, idle_topics=20, idle_shards=5)
    return {figure.name: figure for figure in found}


@pytest.mark.parametrize(("name", "most"), TARGETS.items())
def test_a_cost_stays_within_its_target(figures: dict[str, Figure], name: str, most: float) -> None:
    assert 0 <= figures[name].value <= most


def test_nothing_but_put_delete_and_recording_is_written_for_a_message(
    figures: dict[str, Figure],
) -> None:
    recording = figures["cost.wru_per_message.recording.at_10_per_second"].value
    assert recording > 0
    assert figures["cost.wru_per_message.plain"].value == pytest.approx(2 + recording)
    transactional = figures["cost.wru_per_message.transactional"].value
    assert transactional == pytest.approx(3 + recording, abs=0.03)  # other chances, other windows


def test_the_seeds_pattern_writes_each_message_eight_or_nine_times(
    figures: dict[str, Figure],
) -> None:
    # put, two indexes; update, two left, two entered: and one more for the transaction's put
    assert figures["cost.wru_per_message.plain"].baseline == 8
    assert figures["cost.wru_per_message.transactional"].baseline == 9


def test_every_figure_has_a_name_of_its_own(figures: dict[str, Figure]) -> None:
    found = cost.figures(slow=1, fast=1, burst=1, idle_topics=1, idle_shards=1)
    assert len({figure.name for figure in found}) == len(found) == len(figures)


def test_the_queue_stays_within_its_targets() -> None:
    found = queue.figures(messages=200, backlogs=(1, 2_000), consumers=16, contended=1600)
    values = {figure.name: figure.value for figure in found}
    assert len(values) == len(found)
    assert 3 <= values["queue.wru_per_message.unordered"] <= 3.2
    assert values["queue.rru_per_message.unordered"] <= 0.3
    assert 2 <= values["queue.wru_per_message.ordered"] <= 2.3
    for ordering in ("unordered", "ordered"):
        assert values[f"queue.calls_per_message.{ordering}"] <= 0.5
    assert 0 < values["queue.receive_rru_300_in_flight"] <= 5
    assert values["queue.rru_per_message.16_consumers"] <= 0.3
    assert values["queue.empty_receive_rru.unordered"] == 4.5


def test_sixteen_consumers_of_eight_shards_lose_few_claims_and_pass_nothing_over_for_long() -> None:
    done = Contention(16, messages=1600, backlog=3200, seed=5).run()
    assert 1600 <= done.messages < 1600 + 16 * 10
    # the first receives of each know nothing of the others, and write where they begin
    assert 0 < done.lost_share <= 0.12
    assert done.wru / done.messages <= 3.4
    assert done.rru / done.messages <= 0.3
    assert done.calls / done.messages <= 0.7
    assert 0 < done.passed_over < 400


def test_a_consumer_by_itself_loses_no_claims_and_takes_messages_in_order() -> None:
    done = Contention(1, messages=200, backlog=400).run()
    assert (done.lost, done.passed_over) == (0, 0)
    assert done.tried == done.messages


def test_figures_are_written_as_a_json_list_of_rows(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "x.json"
    write([Figure("x.a", "ms", 3.0), Figure("x.b", "1/s", 10.0, 2.0, "the other")], file)
    assert json.loads(file.read_text()) == [
        {
            "name": "x.a",
            "unit": "ms",
            "value": 3.0,
            "baseline": None,
            "baseline_name": None,
            "ratio": None,
        },
        {
            "name": "x.b",
            "unit": "1/s",
            "value": 10.0,
            "baseline": 2.0,
            "baseline_name": "the other",
            "ratio": 5.0,
        },
    ]


def test_a_figure_beside_a_baseline_of_zero_has_no_ratio() -> None:
    assert Figure("x.a", "ms", 3.0, 0.0, "nothing").ratio is None


def test_the_table_shows_value_baseline_and_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    show("x", [Figure("x.b", "1/s", 10.0, 2.0, "the other")])
    printed = capsys.readouterr().out
    for text in ("x.b", "1/s", "10.000", "2.000", "5.000", "the other"):
        assert text in printed


def test_a_percentile_is_interpolated_at_its_rank() -> None:
    assert percentile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.5
    assert percentile([10.0, 20.0], 0.99) == pytest.approx(19.9)
    assert percentile([7.0], 0.99) == 7.0


def test_a_run_gives_messages_a_second_and_cpu_a_message() -> None:
    run = Run(messages=200, seconds=4.0, cpu_seconds=1.0, expected=200)
    assert (run.rate, run.cpu_ms) == (50.0, 5.0)


SHAPES = [
    Shape(1, 1, 1),
    Shape(640, 64, 10),  # on the root alone
    Shape(650, 10, 7),  # one group under a node, the last one smaller
    Shape(961, 10, 10),  # one group more than a small add has
    Shape(20_000, 16, 9),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.items}-of-{s.group_size}")
def test_the_arithmetic_of_batches_is_what_a_batch_in_memory_costs(shape: Shape) -> None:
    assert prove(shape).differences == []


def test_a_wrong_arithmetic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shape, "nodes", 1)
    differences = prove(Shape(640, 64, 10)).differences
    assert "nodes: 0 counted, 1 computed" in differences
    assert any(text.startswith("WRU of creation: ") for text in differences)


def test_a_billion_items_are_a_small_tree_that_costs_less_than_20_cents() -> None:
    shape = Shape(10**9)
    assert (shape.leaves, shape.nodes) == (139_509, 20)
    assert shape.created().dollars < 0.20
    assert shape.acked().wru / shape.items < 0.0013
    assert shape.stored(hour=488_889, opened=1_760_000_000_000) < 0.15e9


def test_costs_of_acks_stay_within_their_targets() -> None:
    found, faults = batches.figures(acks=60, made=20_000, groups=(10, 30))
    values = {figure.name: figure for figure in found}
    assert faults == []
    assert values["batches.wru_per_ack"].value <= 0.01
    assert values["batches.wru_per_ack.single"].value == 1
    assert values["batches.ack_growth_10_to_10000_groups"].value <= 1.1
    for name in ("batches.rru_per_ack", "batches.rru_per_ack.single"):
        assert values[name].ratio == pytest.approx(1)
    of_the_seed = [values[f"batches.rru_per_ack.{n}_groups"].baseline for n in (10, 30)]
    assert of_the_seed == [4, 8]  # it reads 1,000 bytes a group with every ack; this reads one leaf
    assert len(values) == len(found)


class TestSource004:
    """The baseline tracks a batch as source 004 does."""

    @pytest.fixture
    def seed(self) -> SeedBatches:
        client = MemoryDynamoDB()
        client.create_table(**definition())
        return SeedBatches(client)

    def test_the_last_ack_of_a_sealed_batch_finds_it_finished(self, seed: SeedBatches) -> None:
        seed.open("b")
        seed.add("b", groups=30, size=3)
        assert not seed.seal("b")
        found = [seed.ack("b", group, [0, 1, 2]) for group in range(30)]
        assert found == [False] * 29 + [True]

    def test_a_seal_after_the_last_ack_finds_it_finished(self, seed: SeedBatches) -> None:
        seed.open("b")
        seed.add("b", groups=1, size=9)
        assert not seed.ack("b", 0, range(9))
        assert seed.seal("b")


def test_the_workers_of_the_benchmark_share_all_items_and_none_twice() -> None:
    plans = [Plan("b", groups=3, number=n, workers=4) for n in range(4)]
    items = [item for plan in plans for item in plan.items()]
    assert len(items) == len(set(items)) == 3 * GROUP_SIZE
    assert set(items) == {(group, index) for group in range(3) for index in range(GROUP_SIZE)}


class TestResize:
    def test_nothing_is_lost_or_out_of_order_and_new_shards_get_their_share(self) -> None:
        load = Load(rate=20, seconds=3, ordered=True, keys=40)
        found = {figure.name: figure.value for figure in resize.figures(load)}
        assert found["resize.lost"] == found["resize.out_of_order"] == 0
        assert found["resize.in_new_shards"] > 0
        assert found["resize.longest_pause_later_ms"] < found["resize.longest_pause_ms"]

    def test_a_message_is_out_of_order_where_a_later_one_of_its_key_came_strictly_before(
        self,
    ) -> None:
        added = [resize.Added(f"id-{n}", key, n) for n, key in enumerate("aabba")]
        sent = {"id-0": 10.0, "id-1": 9.0, "id-2": 5.0, "id-3": 5.0, "id-4": 11.0}
        assert resize.out_of_order(added, sent) == 1
        assert resize.out_of_order(added, sent | {"id-4": 1.0}) == 2
        assert resize.out_of_order(added, sent | {"id-0": 8.0}) == 0
        del sent["id-1"]
        assert resize.out_of_order(added, sent) == 0


def test_a_quota_of_firehose_carries_more_messages_than_as_plain_lines() -> None:
    found = {f.name: f.ratio or 0 for f in archive.figures(messages=50, rounds=1)}
    assert found["archive.messages_per_mib.json_1k"] > 5
    assert found["archive.messages_per_mib.json_10k"] > 5
    assert found["archive.messages_per_mib.random_10k"] > 1.2
