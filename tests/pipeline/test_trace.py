"""The life of messages: what a question names, and what it led to."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.model.topics import PULL
from fairbox.tables.batch_values import COMPLETED_TOPIC
from fairbox_pipeline import cli, session
from fairbox_pipeline.cli import run_job
from fairbox_pipeline.jobs import trace
from fairbox_pipeline.schemas import MESSAGES_TABLE, REPLAYS_TABLE
from fairbox_pipeline.transforms import replay
from fairbox_pipeline.warehouse import Warehouse
from pyspark.sql import functions as F

from local.workspace import REPOSITORY
from tests.pipeline.writing import write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DAY = 86_400_000
T0 = 1_763_500_000_000  # 2025-11-18, 21:06:40 UTC
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HOSTILE = "\x1b[31m<b>&\"'\u202e\n\x00]]>é"


def uid(n: int, ms: int = T0) -> str:
    text = f"{ms:012x}"
    return f"{text[:8]}-{text[8:]}-7abc-8def-{n:012x}"


BATCH = uid(77, T0 - 5000)
ITEM = f"{BATCH}:0:"


class Told:
    """Events of one message, as the application writes them."""

    def __init__(self, id_: str, topic: str = "orders", shard: int = 1) -> None:
        self.lines: list[dict[str, Any]] = []
        self.id, self.topic, self.ref = id_, topic, f"{topic}/0/{shard}/{id_}"
        self._key = {"topic": topic, "epoch": 0, "shard": shard, "id": id_}
        self._at = int(id_[:8] + id_[9:13], 16)

    def tell(self, event: str, after: int = 0, **more: Any) -> Told:
        name = f"{self.ref}:{event}:{len(self.lines)}"
        line = {"event": event, "at": self._at + after, **self._key, **more, "event_id": name}
        self.lines.append(line)
        return self

    def added(self, **more: Any) -> Told:
        content = {"partition_key": "k", "content_type": "application/json", "headers": {}}
        whole = {**content, "body": "{}", "body_encoding": "utf-8", "size": 2, "ordering": "none"}
        return self.tell("added", **{**whole, "batch_item": None, **more})

    def tried(self, event: str, after: int, to: str, attempt: int = 1, **more: Any) -> Told:
        place = {"subscription": to, "destination": f"sqs:{to}", "attempt": attempt}
        if event != "delivered":
            more.setdefault("reason", "500 no")
        return self.tell(event, after, **{**place, **more})


def traced(trace_id: str = TRACE, name: str = "traceparent") -> dict[str, str]:
    return {name: f"00-{trace_id}-00f067aa0ba902b7-01"}


@dataclass
class World:
    """Messages of one warehouse, by what they are here for."""

    warehouse: Path
    by: dict[str, Told]

    def ref(self, name: str) -> str:
        return self.by[name].ref


def story() -> dict[str, Told]:
    """Return a message with a copy, a batch and a replay, and others that must stay apart."""
    first = Told(uid(1)).added(headers=traced(), batch_item=f"{ITEM}1", partition_key="customer")
    first.tried("failed", 400, "billing").tried("delivered", 2000, "billing", 2)
    first.tried("delivered", 1000, "fanout", destination="topic:jobs")
    copy = Told(uid(1), "jobs", 3).added(
        headers=traced(), batch_item=f"{ITEM}1", partition_key="customer"
    )
    copy.tried("delivered", 5000, PULL, destination=PULL)
    second = Told(uid(2, T0 + 10)).added(batch_item=f"{ITEM}2")
    second.tried("dead", 1500, "billing", 10).tell("redriven", 60_000)
    second.tried("delivered", 61_000, "billing")
    completed = Told(uid(9, T0 + 90_000), COMPLETED_TOPIC, 0).added(partition_key=BATCH)
    completed.tried("delivered", 700, "watcher")
    # the header's name is of any case; another trace; no trace
    cased = Told(uid(3, T0 + 3 * DAY), "mail", 2).added(headers=traced(name="TraceParent"))
    other = Told(uid(4), "mail").added(headers=traced("1" * 32)).tried("delivered", 9, "smtp")
    twin = Told(uid(4), "jobs").added().tell("cancelled", 5, reason="user")
    hostile = Told(uid(7), f"hostile{HOSTILE}").added(partition_key=HOSTILE)
    hostile.tried("failed", 10, HOSTILE, reason=HOSTILE * 50, destination=HOSTILE)
    return {
        "first": first,
        "copy": copy,
        "second": second,
        "completed": completed,
        "cased": cased,
        "other": other,
        "twin": twin,
        "hostile": hostile,
    }


@pytest.fixture(scope="module")
def world(_shared: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A warehouse with the story, in which a replay has put back the first message."""
    folder = tmp_path_factory.mktemp("trace")
    by = story()
    places = ["--archive", str(folder / "archive"), "--warehouse", str(folder / "warehouse")]
    write(folder / "archive", [line for told in by.values() for line in told.lines])
    assert run_job("history", [*places, "--json"]) == 0
    # the plan and its ids are those of job `replay`
    tables = Warehouse(session.open_session(str(folder / "warehouse")))
    chosen = replay.chosen(tables.read(MESSAGES_TABLE), keys=["customer"], topics=["orders"])
    plan = replay.planned(
        chosen.withColumn("finding", F.lit(None).cast("string")),
        replay="again",
        started=T0 + 2 * DAY,
        same_ids=False,
    )
    tables.append(REPLAYS_TABLE, plan.withColumn("plan", F.lit("{}")))
    by["replayed"] = Told(plan.collect()[0]["new_id"])
    by["replayed"].added(partition_key="customer", headers=traced())
    by["replayed"].tried("delivered", 1000, "billing")
    write(folder / "archive", by["replayed"].lines, "b")
    assert run_job("history", [*places, "--json"]) == 0
    return World(folder / "warehouse", by)


@dataclass
class Command:
    """The command over one warehouse, run as a user does."""

    world: World
    capsys: pytest.CaptureFixture[str]
    said: str = ""

    def text(self, *arguments: str, code: int = 0) -> str:
        self.capsys.readouterr()
        assert cli.main(["trace", *arguments, "--warehouse", str(self.world.warehouse)]) == code
        told = self.capsys.readouterr()
        self.said = told.err
        return told.out

    def json(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.text(*arguments, "--json"))
        return answer

    def names(self, *arguments: str) -> dict[str, str]:
        """Return how each message of the answer was found, by its name."""
        of = {told.ref: name for name, told in self.world.by.items()}
        messages = self.json(*arguments)["messages"]
        found = {of[m["ref"]]: m["found_by"] for m in messages}
        assert len(found) == len(messages)
        return found


@pytest.fixture
def command(world: World, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(world, capsys)


RELATIVES = {"copy": "id", "replayed": "replay", "completed": "batch"}


def test_a_ref_leads_to_copy_replay_and_end_of_batch(command: Command) -> None:
    ref = command.world.ref("first")
    assert command.names(ref) == {"first": "question", **RELATIVES}
    assert command.names(f"{ref}/{T0}") == {"first": "question", **RELATIVES}  # it was delayed
    back = command.names(command.world.ref("replayed"))
    assert back == {"replayed": "question", "first": "replay", "copy": "replay"} | {
        "completed": "batch"
    }


def test_an_id_names_messages_of_every_topic(command: Command) -> None:
    assert command.names("--id", uid(4)) == {"other": "question", "twin": "question"}


def test_a_traceparent_names_every_message_with_its_trace_id(command: Command) -> None:
    asked = ("first", "copy", "replayed", "cased")
    found = {**dict.fromkeys(asked, "question"), "completed": "batch"}
    assert command.names("--traceparent", f"00-{TRACE}-{'b' * 16}-00") == found
    assert command.names("--traceparent", TRACE) == found
    until = command.names("--traceparent", TRACE, "--until", str(T0 + DAY))
    assert until == {"first": "question", "copy": "question", "replayed": "replay"} | {
        "completed": "batch"
    }


def test_a_batch_names_its_items_and_its_end(command: Command) -> None:
    asked = ("first", "copy", "second", "completed")
    assert command.names("--batch", BATCH) == {
        **dict.fromkeys(asked, "question"),
        "replayed": "replay",
    }


def test_a_key_names_its_messages_and_asks_for_the_topic_where_several_have_it(
    command: Command,
) -> None:
    assert command.text("--key", "customer", code=2) == ""
    assert "--key is on topics jobs, orders: add --topic" in command.said
    found = command.names("--key", "customer", "--topic", "orders")
    assert found == {"first": "question", "replayed": "question", "copy": "id"} | {
        "completed": "batch"
    }
    assert command.names("--key", HOSTILE) == {"hostile": "question"}


def test_an_attempt_precedes_the_delivery_stamped_by_its_second(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(uid(1)).added()
    told.tried("failed", 900, "billing").tried("delivered", 600, "billing", 2, precision="s")
    write(tmp_path / "archive", told.lines)
    places = ["--warehouse", str(tmp_path / "warehouse")]
    assert run_job("history", ["--archive", str(tmp_path / "archive"), *places]) == 0
    capsys.readouterr()
    assert trace.main(["--id", uid(1), *places]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"orders/0/1/{uid(1)}  delivered  (found by question)"
    assert lines[1] == "  key k, type application/json, bytes 2"
    assert [line.split()[:2] for line in lines[2:]] == [
        ["2025-11-18T21:06:40.000Z", "added"],
        ["2025-11-18T21:06:40.900Z", "failed"],
        ["2025-11-18T21:06:40.600Z", "delivered"],
    ]
    assert lines[3].endswith("billing to sqs:billing, attempt 1, 500 no")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["orders/0/2/" + uid(1)], "no such message in the tables"),  # another shard
        (["--id", uid(999)], "no such message in the tables"),
        (["--traceparent", "2" * 32], "no such message in the tables"),
        (["--batch", "nobody"], "no such message in the tables"),
        (["--key", "nobody"], "no such message in the tables"),
        (["--batch", f"{BATCH}:0:1"], "no such message in the tables"),
        (["--id", uid(1), "--topic", "orders"], "--topic goes with --key"),
        (["--id", uid(1), "--since", "2026-01-01"], "no such message in the tables"),
    ],
)
def test_what_is_unknown_or_does_not_fit_is_one_line(
    command: Command, arguments: list[str], told: str
) -> None:
    assert command.text(*arguments, code=2) == ""
    assert told in command.said.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "required"),
        (["--id", uid(1), "--batch", BATCH], "not allowed with"),
        (["--key", "\udc80"], "not text in UTF-8"),
        (["orders/0/x/" + uid(1)], "not topic/epoch/shard/id"),
        (["--traceparent", "0" * 32], "not a traceparent"),
        (["--traceparent", "0af7-1"], "not a traceparent"),
        (["--id", uid(1), "--limit", "1001"], "from 1 to 1000"),
        (["--batch", BATCH, "--since", "2", "--until", "1"], "--until is not after --since"),
    ],
)
def test_arguments_of_another_form_are_refused(
    command: Command, arguments: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.text(*arguments)
    assert ended.value.code == 2
    assert told in command.capsys.readouterr().err


def test_a_warehouse_that_is_not_there_is_refused_and_not_made(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trace.main(["--id", uid(1), "--warehouse", str(tmp_path / "typo")]) == 2
    assert "the warehouse has no table fairbox.events: run history first" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_an_answer_is_cut_at_the_limit_and_says_so(command: Command) -> None:
    answer = command.json("--batch", BATCH, "--limit", "2")
    assert [m["id"] for m in answer["messages"]] == [uid(1), uid(1)]
    assert answer["cut"] is True
    text = command.text("--batch", BATCH, "--limit", "2")
    assert text.splitlines()[-1] == "there is more: --limit 2 cut it"
    assert command.json("--batch", BATCH, "--limit", "5")["cut"] is False
    related = command.json("--id", uid(1), "--limit", "3")
    assert (len(related["messages"]), related["cut"]) == (3, True)


def test_hostile_texts_are_escaped_in_the_terminal(command: Command) -> None:
    text = command.text("--id", uid(7))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert text.count(r"\x1b[31m<b>&") > 3


def documented(after: str) -> str:
    """Return the first query behind a sentence of the how-to."""
    text = (REPOSITORY / "docs/how-to/analyse-history.md").read_text(encoding="utf-8")
    return text.partition(after)[2].partition("```sql\n")[2].partition(";\n```")[0]


def test_the_query_for_athena_has_the_events_of_the_answer(command: Command) -> None:
    query = documented("Athena answers the same question")
    example = uid(1)
    assert query.count(example) == 1
    spark = session.open_session(str(command.world.warehouse))
    for name in ("first", "replayed", "second"):
        told = command.world.by[name]
        rows = spark.sql(query.replace(example, told.id)).collect()
        fields = ("event", "at", "subscription", "destination", "attempt", "reason")
        found = [
            (f"{r['topic']}/{r['epoch']}/{r['shard']}/{r['id']}", *(r[f] for f in fields))
            for r in rows
        ]
        messages = command.json("--id", told.id)["messages"]
        wanted = [(m["ref"], *(e[f] for f in fields)) for m in messages for e in m["events"]]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
        assert [r["at"] for r in rows] == sorted(r["at"] for r in rows)
        traces = {r["traceparent"] for r in rows} - {None}
        assert traces == ({traced()["traceparent"]} if name != "second" else set())


def test_an_id_reads_the_days_of_its_message(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days, a_day = 8, 20
    lines = []
    for day in range(days):
        for n in range(a_day):
            told = Told(uid(n, T0 + day * DAY + n), "aaa" if n % 2 else "zzz").added()
            lines += told.tried("delivered", 100, "billing").lines
    write(tmp_path / "archive", lines)
    places = ["--warehouse", str(tmp_path / "warehouse")]
    assert run_job("history", ["--archive", str(tmp_path / "archive"), *places]) == 0
    capsys.readouterr()
    assert trace.main(["--id", uid(9, T0 + 5 * DAY + 9), *places]) == 0
    found = re.search(r"trace: [0-9]+ stages read ([0-9,]+) rows", capsys.readouterr().err)
    assert found is not None
    # the question and its relatives read a day of messages each, then comes a day of events
    assert int(found[1].replace(",", "")) == 2 * a_day + 2 * a_day
