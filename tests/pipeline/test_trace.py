"""The life of messages: what a question names, and what it led to."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from fairbox.batches.models import COMPLETED_TOPIC
from fairbox.model.topics import PULL
from fairbox_pipeline import cli, session
from fairbox_pipeline.jobs import history, trace
from fairbox_pipeline.lineage import iso_time, offset, printable
from fairbox_pipeline.schemas import MESSAGES_TABLE, REPLAYS_TABLE
from fairbox_pipeline.transforms import replay
from fairbox_pipeline.transforms.replay import Choice
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
    new_id: str

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
    expired = Told(uid(5)).added(batch_item=f"{uid(78)}:0:0").tell("expired", 8)
    purged = Told(uid(6)).added().tell("purged", 8, reason="operator")
    hostile = Told(uid(7), f"hostile{HOSTILE}").added(partition_key=HOSTILE)
    hostile.tried("failed", 10, HOSTILE, reason=HOSTILE * 50, destination=HOSTILE)
    names = [
        "first",
        "copy",
        "second",
        "completed",
        "cased",
        "other",
        "twin",
        "expired",
        "purged",
        "hostile",
    ]
    made = (first, copy, second, completed, cased, other, twin, expired, purged, hostile)
    return dict(zip(names, made, strict=True))


@pytest.fixture(scope="module")
def world(_shared: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A warehouse with the story, in which a replay has put back the first two messages."""
    folder = tmp_path_factory.mktemp("trace")
    by = story()
    places = ["--archive", str(folder / "archive"), "--warehouse", str(folder / "warehouse")]
    write(folder / "archive", [line for told in by.values() for line in told.lines])
    assert history.main([*places, "--json"]) == 0
    # the plan and its ids are those of job `replay`
    tables = Warehouse(session.open_session(str(folder / "warehouse")))
    messages = tables.read(MESSAGES_TABLE)
    chosen = replay.chosen(messages, Choice(keys=("customer",), topics=("orders",)))
    planned = replay.planned(chosen, replay="again", lanes=1, started=T0 + 2 * DAY, same_ids=False)
    kept = replay.chosen(messages, Choice(topics=("orders",), states=("delivered",)))
    same = replay.planned(kept, replay="same", lanes=1, started=T0 + DAY, same_ids=True)
    lost = replay.planned(
        replay.chosen(messages, Choice(states=("expired",))),
        replay="lost",
        lanes=1,
        started=T0 + DAY,
        same_ids=False,
    )
    for plan in (planned, same.where(F.col("id") == uid(2, T0 + 10)), lost):
        tables.append(
            REPLAYS_TABLE, plan.withColumn("plan", F.lit("{}")).select(*REPLAYS_TABLE.names)
        )
    new_id = planned.collect()[0]["new_id"]
    by["replayed"] = Told(new_id).added(partition_key="customer", headers=traced())
    by["replayed"].tried("delivered", 1000, "billing")
    write(folder / "archive", by["replayed"].lines, "b")
    assert history.main([*places, "--json"]) == 0
    return World(folder / "warehouse", by, new_id)


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

    def names(self, *arguments: str) -> tuple[set[str], set[str]]:
        """Return the names of the messages in the answer, and of those asked for."""
        of = {told.ref: name for name, told in self.world.by.items()}
        messages = self.json(*arguments)["messages"]
        found = [of[m["ref"]] for m in messages]
        assert len(found) == len(set(found))
        return set(found), {of[m["ref"]] for m in messages if m["asked"]}


@pytest.fixture
def command(world: World, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(world, capsys)


FAMILY = {"first", "copy", "replayed", "completed"}


def test_a_ref_leads_to_copy_replay_and_end_of_batch(command: Command) -> None:
    assert command.names(command.world.ref("first")) == (FAMILY, {"first"})


def test_a_ref_of_a_delayed_message_names_it_too(command: Command) -> None:
    assert command.names(f"{command.world.ref('first')}/{T0}") == (FAMILY, {"first"})


def test_copy_and_replay_lead_back(command: Command) -> None:
    for name in ("copy", "replayed"):
        assert command.names(command.world.ref(name)) == (FAMILY, {name})


def test_an_end_of_a_batch_stands_alone_because_a_batch_may_be_large(command: Command) -> None:
    assert command.names(command.world.ref("completed")) == ({"completed"}, {"completed"})


def test_an_id_names_messages_of_every_topic_and_a_ref_one(command: Command) -> None:
    assert command.names("--id", uid(4)) == ({"other", "twin"}, {"other", "twin"})
    # no destination leads from one to the other
    assert command.names(command.world.ref("other")) == ({"other"}, {"other"})


def test_a_traceparent_names_every_message_with_its_trace_id(command: Command) -> None:
    found = (FAMILY | {"cased"}, {"first", "copy", "replayed", "cased"})
    assert command.names("--traceparent", f"00-{TRACE}-{'b' * 16}-00") == found
    assert command.names("--traceparent", TRACE) == found
    since, until = iso_time(T0 + DAY), str(T0 + 3 * DAY)
    asked = command.names("--traceparent", TRACE, "--since", since, "--until", until)[1]
    assert asked == {"replayed"}


def test_a_batch_names_its_items_and_its_end(command: Command) -> None:
    assert command.names("--batch", BATCH) == (
        FAMILY | {"second"},
        {"first", "copy", "second", "completed"},
    )


def test_a_key_names_its_messages(command: Command) -> None:
    found = command.names("--key", "orders", "customer")
    assert found == (FAMILY, {"first", "replayed"})
    assert command.names("--key", f"hostile{HOSTILE}", HOSTILE)[1] == {"hostile"}


def test_links_name_subscription_replay_and_batch(command: Command) -> None:
    world = command.world
    links = command.json("--batch", BATCH)["links"]
    found = {(k["kind"], k["name"], k["source"], k["target"], k["id"]) for k in links}
    first, copy, second = map(world.ref, ("first", "copy", "second"))
    completed, replayed = world.ref("completed"), world.ref("replayed")
    assert found == {
        ("copy", "fanout", first, copy, uid(1)),
        ("replay", "again", first, replayed, world.new_id),
        ("replay", "same", second, second, uid(2, T0 + 10)),
        *(("completion", BATCH, r, completed, completed[-36:]) for r in (first, copy, second)),
    }
    assert len(links) == len(found)


def test_a_replay_whose_message_is_not_seen_is_told(command: Command) -> None:
    (link,) = command.json(command.world.ref("expired"))["links"]
    assert (link["kind"], link["name"], link["target"]) == ("replay", "lost", None)
    assert f"replay lost: {link['id']}, which is not shown" in command.text("--id", uid(5))
    # and from its other end
    assert command.text("--id", link["id"], code=2) == ""


def test_events_are_those_of_the_archive_in_order(command: Command) -> None:
    for name, told in command.world.by.items():
        (found,) = (m for m in command.json("--id", told.id)["messages"] if m["ref"] == told.ref)
        fields = ("event", "at", "subscription", "destination", "attempt", "reason")
        wanted = [{field: line.get(field) for field in fields} for line in told.lines]
        assert found["events"] == sorted(wanted, key=lambda event: event["at"] or 0), name


def test_an_attempt_precedes_the_delivery_stamped_by_its_second(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(uid(1)).added().tried("failed", 900, "billing").tried("dead", 600, "late", 3)
    told.tried("delivered", 0, "billing", 2).tell("redriven", 999)
    write(tmp_path / "archive", told.lines)
    places = ["--warehouse", str(tmp_path / "warehouse")]
    assert history.main(["--archive", str(tmp_path / "archive"), *places]) == 0
    capsys.readouterr()
    assert trace.main([told.ref, *places, "--json"]) == 0
    (message,) = json.loads(capsys.readouterr().out)["messages"]
    order = [(event["event"], event["attempt"]) for event in message["events"]]
    assert order == [
        ("added", None),
        ("failed", 1),
        ("delivered", 2),
        ("dead", 3),
        ("redriven", None),
    ]


def test_the_text_is_a_tree(command: Command) -> None:
    world = command.world
    text = command.text(world.ref("first"))
    first, copy, replayed, completed = map(world.ref, ("first", "copy", "replayed", "completed"))
    content = "key customer, content type application/json, bytes 2"
    item, header = f"batch item {ITEM}1", f"traceparent 00-{TRACE}-00f067aa0ba902b7-01"
    assert text.splitlines() == [
        f"{first}  delivered  (asked for)",
        f"├── {content}, {item}, {header}",
        "├── 2025-11-18T21:06:40.000Z      +0.000 s  added",
        "├── billing to sqs:billing",
        "│   ├── 2025-11-18T21:06:40.400Z      +0.400 s  failed, attempt 1, 500 no",
        "│   └── 2025-11-18T21:06:42.000Z      +2.000 s  delivered, attempt 2",
        "├── fanout to topic:jobs",
        "│   ├── 2025-11-18T21:06:41.000Z      +1.000 s  delivered, attempt 1",
        f"│   └── copy: {copy}  delivered",
        f"│       ├── {content}, {item}, {header}",
        "│       ├── 2025-11-18T21:06:40.000Z      +0.000 s  added",
        f"│       ├── {PULL} to {PULL}",
        "│       │   └── 2025-11-18T21:06:45.000Z      +5.000 s  delivered, attempt 1",
        f"│       └── batch {BATCH} ended: {completed}",
        f"├── replay again: {replayed}  delivered",
        f"│   ├── {content}, {header}",
        "│   ├── 2025-11-20T21:06:40.000Z  +2 d 00:00:00.000  added",
        "│   └── billing to sqs:billing",
        "│       └── 2025-11-20T21:06:41.000Z  +2 d 00:00:01.000  delivered, attempt 1",
        f"└── batch {BATCH} ended: {completed}",
        f"{completed}  delivered",
        f"├── key {BATCH}, content type application/json, bytes 2",
        "├── 2025-11-18T21:08:10.000Z  +00:01:30.000  added",
        "└── watcher to sqs:watcher",
        "    └── 2025-11-18T21:08:10.700Z  +00:01:30.700  delivered, attempt 1",
    ]
    assert "replay same: under the same id" in command.text(world.ref("second"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["orders/0/1/" + uid(999)], "REF orders/0/1/" + uid(999)),
        (["orders/0/2/" + uid(1)], "REF orders/0/2/"),  # another shard
        (["--id", uid(999)], "--id " + uid(999)),
        (["--traceparent", "2" * 32], "--traceparent " + "2" * 32),
        (["--batch", "nobody"], "--batch nobody"),
        (["--key", "orders", "nobody"], "--key orders nobody"),
        (["--key", "orders", "\x1b[2J"], r"--key orders \x1b[2J"),
        (["--traceparent", TRACE, "--until", str(T0)], "--traceparent " + TRACE),
    ],
)
def test_what_is_unknown_is_named(command: Command, arguments: list[str], told: str) -> None:
    assert command.text(*arguments, code=2) == ""
    assert f"fairbox: {told}" in command.said
    assert "no such message in the tables" in command.said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "required"),
        (["--id", uid(1), "--batch", BATCH], "not allowed with"),
        (["--id", uid(1).upper()], "not a UUIDv7"),
        (["--id", "1' OR '1'='1"], "not a UUIDv7"),
        (["orders/0/1"], "not topic/epoch/shard/id"),
        (["orders/0/x/" + uid(1)], "not topic/epoch/shard/id"),
        (["--traceparent", "0" * 32], "not a traceparent"),
        (["--traceparent", f"ff-{TRACE}-00f067aa0ba902b7-01"], "not a traceparent"),
        (["--batch", f"{BATCH}:0:1"], "not the id of a batch"),
        (["--id", uid(1), "--limit", "0"], "from 1 to 1000"),
        (["--id", uid(1), "--limit", "1001"], "from 1 to 1000"),
        (["--traceparent", TRACE, "--since", "yesterday"], "not a time"),
    ],
)
def test_arguments_of_another_form_are_refused(
    command: Command, arguments: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.text(*arguments)
    assert ended.value.code == 2
    assert told in command.capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--id", uid(1), "--since", "2025-11-18"], "an id has its time"),
        (["--batch", BATCH, "--since", "2", "--until", "1"], "--until is not after --since"),
        (["--key", "orders", "\udc80"], "not text in UTF-8"),
        (["--id", uid(1), "--svg", "nowhere/a.svg"], "--svg: there is no folder"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    command: Command, arguments: list[str], told: str
) -> None:
    assert command.text(*arguments, code=2) == ""
    assert told in command.said


def test_a_warehouse_that_is_not_there_is_refused_and_not_made(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trace.main(["--id", uid(1), "--warehouse", str(tmp_path / "typo")]) == 2
    assert "the warehouse has no table fairbox.events: run history first" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_the_tables_are_only_read(command: Command) -> None:
    def files() -> dict[Path, int]:
        found = command.world.warehouse.rglob("*")
        return {path: path.stat().st_mtime_ns for path in found if path.is_file()}

    before = files()
    command.text("--batch", BATCH)
    assert files() == before


def test_an_answer_is_cut_at_the_limit_and_says_so(command: Command) -> None:
    answer = command.json("--batch", BATCH, "--limit", "2")
    assert [m["id"] for m in answer["messages"]] == [uid(1), uid(1)]
    assert answer["cut"] == ["messages"]
    assert answer["limit"] == 2
    text = command.text("--batch", BATCH, "--limit", "2")
    assert text.splitlines()[-1] == (
        "cut: there are more messages than are shown (2 at most; see --limit)"
    )
    whole = command.json("--batch", BATCH, "--limit", "5")
    assert (len(whole["messages"]), whole["cut"]) == (5, [])
    # what a message led to counts as well
    related = command.json("--id", uid(1), "--limit", "3")
    assert (len(related["messages"]), related["cut"]) == (3, ["messages"])


def test_hostile_texts_are_escaped_in_the_terminal(command: Command) -> None:
    text = command.text("--id", uid(7))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert text.count(r"\x1b[31m<b>&") > 3
    assert r"\u202e\n\x00]]>é" in text
    assert max(map(len, text.splitlines())) < 1000  # the reason is cut
    # JSON has the values as they are
    (message,) = command.json("--id", uid(7))["messages"]
    assert message["partition_key"] == HOSTILE
    assert message["events"][1]["reason"] == HOSTILE * 50


@pytest.mark.parametrize("asked", [["--batch", BATCH], ["--id", uid(7)]])
def test_the_picture_has_every_message_and_event_and_loads_nothing(
    command: Command, tmp_path: Path, asked: list[str]
) -> None:
    file = tmp_path / "trace.svg"
    answer = command.json(*asked, "--svg", str(file))
    text = file.read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314 - our own
    svg = "{http://www.w3.org/2000/svg}"
    marks = [p for p in root.iter(f"{svg}path") if (p.get("transform") or "").startswith("trans")]
    events = [event for message in answer["messages"] for event in message["events"]]
    assert len(marks) == len(events)
    titles = [title.text or "" for title in root.iter(f"{svg}title")]
    for message in answer["messages"]:
        assert any(title.startswith(printable(message["ref"])) for title in titles)
    names = {element.tag.removeprefix(svg) for element in root.iter()}
    assert names <= {"svg", "title", "style", "defs", "marker", "path", "rect", "text", "g", "line"}
    values = [value for element in root.iter() for value in element.attrib.values()]
    assert not [v for v in values if re.search(r"url\((?!#h\))|^\w+:|javascript", v)]
    assert text.count("http") == 1  # the namespace
    assert "prefers-color-scheme: dark" in text
    assert not list(tmp_path.glob("*.new"))
    places = [float(p.get("transform", "")[10:].partition(",")[0]) for p in marks]
    assert all(0 < place < float(root.get("width", 0)) for place in places)


def test_a_picture_that_cannot_be_written_is_an_error(command: Command, tmp_path: Path) -> None:
    (tmp_path / "taken.svg").mkdir()
    assert command.text("--id", uid(1), "--svg", str(tmp_path / "taken.svg"), code=2) == ""
    assert "--svg:" in command.said
    assert [path.name for path in tmp_path.iterdir()] == ["taken.svg"]


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (0, "+0.000 s"),
        (-40, "-0.040 s"),
        (59_999, "+59.999 s"),
        (60_000, "+00:01:00.000"),
        (DAY - 1, "+23:59:59.999"),
        (-DAY, "-1 d 00:00:00.000"),
    ],
)
def test_distances_are_exact(ms: int, told: str) -> None:
    assert offset(ms) == told


def test_times_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert iso_time(-1) == "1969-12-31T23:59:59.999Z"
    assert iso_time(10**18) == f"{10**18} ms"


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


def test_the_query_for_a_trace_id_finds_ids(command: Command) -> None:
    query = documented("To find ids by a trace id")
    assert TRACE in query
    spark = session.open_session(str(command.world.warehouse))
    # a header of another case is found by the command alone
    assert {r["id"] for r in spark.sql(query).collect()} == {uid(1), command.world.new_id}


DAYS = 24
A_DAY = 60


@pytest.fixture(scope="module")
def many_days(_shared: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of some days with so many messages each, of topics before and after Fairbox's."""
    folder = tmp_path_factory.mktemp("days")
    lines = []
    for day in range(DAYS):
        for n in range(A_DAY):
            told = Told(uid(n, T0 + day * DAY + n), "aaa" if n % 2 else "zzz")
            item = f"{ITEM}{day}" if n == 7 else None
            headers = traced() if n == 9 else {}
            told.added(partition_key=f"k{n}", batch_item=item, headers=headers)
            told.tried("delivered", 100, "billing")
            # the life of one message goes on for days
            if (day, n) == (3, 7):
                told.tried("delivered", 2 * DAY, "late")
            lines += told.lines
    write(folder / "archive", lines)
    places = ["--archive", str(folder / "archive"), "--warehouse", str(folder / "warehouse")]
    assert history.main(places) == 0
    return folder / "warehouse"


def rows_read(said: str) -> int:
    found = re.search(r"trace: [0-9]+ stages read ([0-9,]+) rows", said)
    assert found is not None, said
    return int(found[1].replace(",", ""))


def test_rows_read_do_not_grow_with_the_days(
    many_days: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(*arguments: str) -> tuple[int, int]:
        capsys.readouterr()
        assert trace.main([*arguments, "--warehouse", str(many_days), "--json"]) == 0
        told = capsys.readouterr()
        return rows_read(told.err), len(json.loads(told.out)["messages"])

    # a day of messages and a day of events, of all that there are
    late = uid(9, T0 + (DAYS - 2) * DAY + 9)
    assert read("--id", late) == (A_DAY + 2 * A_DAY, 1)
    # its last delivery is two days later; the day between is left out. An item looks for its batch
    early = uid(7, T0 + 3 * DAY + 7)
    assert read("--id", early) == (A_DAY + 2 * A_DAY + 2 * A_DAY + 1, 1)
    # a trace id has no time: without one, every event is looked at
    day = ["--since", str(T0 + 10 * DAY), "--until", str(T0 + 11 * DAY)]
    assert read("--traceparent", TRACE, *day) == (2 * A_DAY + A_DAY + 2 * A_DAY, 1)
    assert read("--key", "aaa", "k9", *day) == (A_DAY + A_DAY + 2 * A_DAY, 1)
    all_events = 2 * DAYS * A_DAY + 1
    assert read("--traceparent", TRACE, "--limit", "1")[0] > all_events
