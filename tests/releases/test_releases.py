"""Every release's items are read as it read them itself, and today's code goes on with its work."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from fairbox.batches.ack_messages import parse
from fairbox.settings import Settings
from fairbox.testing.application import BATCHES, OUTBOX, MemoryApplication

from tests.releases.folder import (
    CHECKSUMS,
    RELEASES,
    checksums,
    contents,
    load,
    models,
    shapes,
    text_of,
    version,
)
from tests.releases.loading import UNKNOWN, application, read_streams
from tests.releases.world import build

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDERS: Final = sorted(p for p in RELEASES.iterdir() if p.is_dir())
HOURS: Final = 3


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def files(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


class NextMinor:
    """A client whose puts carry what a newer function would put there too."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_item(self, **request: Any) -> Any:
        return self._client.put_item(**request | {"Item": request["Item"] | UNKNOWN})

    def batch_write_item(self, **request: Any) -> Any:
        for requests in request["RequestItems"].values():
            for entry in requests:
                if "PutRequest" in entry:
                    entry["PutRequest"] = {"Item": entry["PutRequest"]["Item"] | UNKNOWN}
        return self._client.batch_write_item(**request)

    def batch_execute_statement(self, **request: Any) -> Any:
        for entry in request["Statements"]:
            if entry["Statement"].startswith("INSERT"):
                more = "".join(f", '{name}': ?" for name in UNKNOWN)
                entry["Statement"] = entry["Statement"][:-1] + more + "}"
                entry["Parameters"] = [*entry["Parameters"], *UNKNOWN.values()]
        return self._client.batch_execute_statement(**request)

    def transact_write_items(self, **request: Any) -> Any:
        actions = [
            {"Put": action["Put"] | {"Item": action["Put"]["Item"] | UNKNOWN}}
            if "Put" in action
            else action
            for action in request["TransactItems"]
        ]
        return self._client.transact_write_items(**request | {"TransactItems": actions})


def contained(expected: Any, found: Any, place: str = "") -> None:
    """Everything that is expected is there; models may have more fields than they had."""
    if isinstance(expected, dict):
        assert isinstance(found, dict), place
        for name, value in expected.items():
            assert name in found, f"{place}.{name}"
            contained(value, found[name], f"{place}.{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), place
        assert len(found) == len(expected), place
        for n, (one, other) in enumerate(zip(expected, found, strict=True)):
            contained(one, other, f"{place}[{n}]")
    else:
        assert found == expected, place


def test_the_release_of_this_tree_has_fixtures() -> None:
    assert version() in {folder.name for folder in FOLDERS}, "run scripts/write_release_fixtures.py"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_fixtures_of_a_release_never_change(folder: Any) -> None:
    assert (folder / CHECKSUMS).read_text() == checksums(folder)


def test_the_fixtures_hold_every_kind_of_item(files: Mapping[str, Any]) -> None:
    tables = files["tables.json"]
    kinds = {item["pk"]["S"].split("#")[0] for item in tables[OUTBOX]}
    assert kinds >= {"ready", "later", "config", "hint", "cursor"}
    kept = {i["pk"]["S"].split("#")[0] for i in tables["deliveries"]}
    assert kept == {"dead", "ledger", "dedup", "segments"}
    ends = {item["sk"]["S"].split("#")[0] for item in tables[BATCHES]}
    assert ends == {"c", "root", "l", "n", "f", "add", "meta"}
    attributes = {name for item in tables[OUTBOX] for name in item}
    # state, pending, claims, marks, what is packed into rows, offloaded and compressed bodies
    assert attributes >= {"s", "p", "ct", "g", "hd", "ho", "o", "e", "mv", "ed", "n", "st", "sp"}


def test_no_attribute_is_written_that_the_release_of_this_tree_does_not_know() -> None:
    """A new one needs a new version, with fixtures that hold it."""
    files = contents(build())
    more = shapes(json.loads(text_of(files))) - shapes(load(RELEASES / version()))
    assert more == set()
    assert json.loads(text_of(contents(build()))) == json.loads(text_of(files))  # and a run repeats


def test_every_item_is_read_as_its_release_read_it(files: Mapping[str, Any]) -> None:
    contained(files["expected.json"], json.loads(text_of(models(files))))


def test_every_item_of_the_next_minor_release_is_read_as_if_it_had_nothing_more(
    files: Mapping[str, Any],
) -> None:
    more = {"zz": {"S": "more"}, "zy": {"M": {"deep": {"B": "AAE="}}}}
    changed = dict(files)
    changed["tables.json"] = {
        name: [item | more for item in items] for name, items in files["tables.json"].items()
    }
    streams = json.loads(json.dumps(files["streams.json"]))
    for record in (r for records in streams.values() for r in records):
        for image in ("NewImage", "OldImage"):
            if image in record["dynamodb"]:
                record["dynamodb"][image] |= more
    changed["streams.json"] = streams
    messages = files["messages.json"]
    doorbells = [json.loads(text) | {"hint": 1} for text in messages["doorbells"]]
    changed["messages.json"] = messages | {"doorbells": [json.dumps(d) for d in doorbells]}
    contained(files["expected.json"], json.loads(text_of(models(changed))))
    assert parse(json.dumps(json.loads(messages["acks"][0]) | {"hint": 1})) == parse(
        messages["acks"][0]
    )


def test_settings_of_a_release_are_understood(files: Mapping[str, Any]) -> None:
    settings = Settings.from_env(files["settings.json"] | {"FAIRBOX_OF_THE_NEXT_MINOR": "1"})
    for name, value in files["settings.json"].items():
        if name.endswith(("_DAYS", "_HOURS")):
            assert settings.whole(name, 1) == int(value)
        elif value in ("true", "false"):
            assert settings.flag(name) is (value == "true")
        else:
            assert settings.required(name) == value


@pytest.mark.parametrize(
    "fleet",
    [
        pytest.param("today's", marks=pytest.mark.extended),
        pytest.param("today's, items of the next minor", marks=pytest.mark.extended),
        "both at once",
    ],
)
def test_the_work_of_a_release_is_finished(files: Mapping[str, Any], fleet: str) -> None:
    extra = UNKNOWN if fleet != "today's" else None
    wrap: Any = NextMinor if fleet == "both at once" else lambda client: client
    app = application(files, extra=extra, wrap=wrap)
    before = expected_bodies(files)
    read_streams(app, files)
    settle_old_receipts(app, files)
    app.outbox.resume_subscription("idle", "nobody")
    for topic in ("orders", "payments", "invoices"):
        app.outbox.redrive(topic)
    end_batches(app, files)
    taken = Counter[str]()
    for _ in range(HOURS):
        app.run(3600, step=20)
        app.repair()
        for state in app.outbox.topics():
            if not state.pushed:
                taken += pull(app, state.topic.name)
    app.run(1)
    check_delivered(app, before, taken)
    check_ended(app, files, taken)


def expected_bodies(files: Mapping[str, Any]) -> dict[str, set[str]]:
    """topic -> ids of what is to be delivered: all that is outstanding, and what is redriven."""
    ids: dict[str, set[str]] = {}
    read = files["expected.json"]
    dead = [d["stored"] for d in read["deliveries"].values() if isinstance(d, dict) and d["stored"]]
    lying = [m for m in read["outbox"].values() if isinstance(m, dict) and "ref" in m]
    for stored in (*lying, *dead):
        if stored["gone"] is None:
            ids.setdefault(stored["ref"]["topic"], set()).add(stored["ref"]["id"])
    return ids


def settle_old_receipts(app: MemoryApplication, files: Mapping[str, Any]) -> None:
    """Consumers that were there before go on: one acknowledges, one extends and gives back."""
    jobs, steps = (files["messages.json"]["receipts"][t][0] for t in ("jobs", "steps"))
    app.queue.nack(jobs, reason="after the upgrade")
    app.queue.extend(steps, 60)
    app.queue.release([steps])


def end_batches(app: MemoryApplication, files: Mapping[str, Any]) -> None:
    world = files["world.json"]
    opened = world["batches"]["open"]
    app.batches.ack(parse(files["messages.json"]["acks"][0]))
    app.batches.ack([*world["items"]["wide"], *world["items"]["nested"]])
    more = app.batches.add(opened, 2, request_id="after the upgrade")
    app.batches.ack(item for group in more for item in group.item_ids())
    app.batches.seal(opened)


def pull(app: MemoryApplication, topic: str) -> Counter[str]:
    taken = Counter[str]()
    for _ in range(30):
        received = app.queue.receive(topic, 10)
        app.queue.ack([r.receipt for r in received])
        taken.update(f"{topic} {r.message.id}" for r in received)
        app.run(0)
        app.clock.advance(3)
    return taken


def check_delivered(
    app: MemoryApplication, before: Mapping[str, set[str]], taken: Counter[str]
) -> None:
    destinations = {
        "orders": ("sqs:billing", "https://audit.example/in"), "payments": ("sqs:ledger.fifo",),
        "invoices": ("sqs:print",), "idle": ("sqs:nobody",),
    }  # fmt: skip
    arrived = {
        topic: {i for address in addresses for i in app.destinations[address].ids}
        for topic, addresses in destinations.items()
    }
    for name in taken:
        topic, message = name.split()
        arrived.setdefault(topic, set()).add(message)
    for topic, ids in before.items():
        assert ids <= arrived.get(topic, set()), topic
    left = [i for i in app.engine.items(OUTBOX) if "z" in i]
    assert left == []
    dead = [i for i in app.engine.items("deliveries") if i["pk"]["S"].startswith("dead#")]
    assert [i["sk"]["S"] for i in dead] == ["junk"]  # what was unreadable then is still told
    assert app.outbox.outstanding_count() == 0
    order = [m.message.partition_key for m in app.destinations["sqs:ledger.fifo"].received]
    sent = app.destinations["sqs:ledger.fifo"].ids
    for key in set(order):
        of_key = [i for i, k in zip(sent, order, strict=True) if k == key]
        assert of_key == sorted(of_key)


def check_ended(app: MemoryApplication, files: Mapping[str, Any], taken: Counter[str]) -> None:
    """Each batch that was to complete has, announced once, with the figures of both releases."""
    batches = files["world.json"]["batches"]
    for name in ("open", "wide", "nested", "done"):
        progress = app.batches.progress(batches[name])
        assert progress.complete, name
        assert progress.pending == 0
    assert app.batches.progress(batches["open"]).failed == 2
    assert app.batches.progress(batches["cancelled"]).state == "cancelled"
    announced = [n for n in taken if n.startswith("fairbox.batches.completed ")]
    assert len(announced) == 4
    assert all(taken[name] == 1 for name in announced)
