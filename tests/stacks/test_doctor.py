"""The doctor finds nothing wrong with the application as synthesised, and whatever breaks."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import EndpointConnectionError
from fairbox import Feed, Subscription, Topic
from fairbox.doctor import aws
from fairbox.doctor.aws import Aws, NotAnswered
from fairbox.doctor.examination import checks, examine
from fairbox.doctor.examined_deployment import Deployment
from fairbox.errors import InvalidInput
from fairbox.settings import Settings
from fairbox.testing.application import FEEDS, OUTBOX

from tests.stacks.assembly import listed
from tests.stacks.conftest import ROOT
from tests.stacks.described import Described, refused
from tests.stacks.test_access import EXAMINES
from tests.support.application import POISONED, App

if TYPE_CHECKING:
    from fairbox.doctor.findings import Finding

    from tests.stacks.assembly import Assembly

Break = Callable[["World"], None]


class World:
    """A deployment, what lies in its tables, and a doctor for it."""

    def __init__(self, aws: Described) -> None:
        self.aws = aws
        self.app = App()
        self.environment = aws.environment()
        self.version = aws.outputs["FairboxDelivery"]["Version"]

    def table(self, role: str) -> str:
        return self.environment[f"FAIRBOX_{role.upper()}_TABLE"]

    def url(self, part: str) -> str:
        (url,) = (u for u in self.aws.queues if part in u)
        return url

    def deployment(self, **more: Any) -> Deployment:
        settings = Settings(self.environment)
        return Deployment(
            self.app.outbox,
            settings,
            Aws(self.aws.client, self.app.clock.sleep),
            more.pop("version", self.version),
            **more,
        )

    def examine(self, *only: str, **more: Any) -> list[Finding]:
        return list(examine(self.deployment(**more), only))


@pytest.fixture(scope="module")
def healthy(assembly: Assembly) -> Described:
    return Described.of(assembly.folder)


@pytest.fixture(scope="module")
def with_feeds(keyed: Assembly) -> Described:
    return Described.of(keyed.folder)


def fresh(described: Described) -> World:
    template = described.template
    # the template is not to be copied: nothing breaks it
    return World(copy.deepcopy(described, {id(template): template}))


@pytest.fixture
def world(healthy: Described) -> World:
    return fresh(healthy)


def bad(findings: list[Finding]) -> list[Finding]:
    return [f for f in findings if f.status != "ok"]


def test_nothing_is_wrong_with_the_application_as_it_is_deployed(world: World) -> None:
    findings = world.examine()
    assert [(f.check, f.status) for f in bad(findings)] == [("placement", "not checked")]
    assert {f.check for f in findings} == {check.name for check in checks()}


def test_what_is_asked_is_bounded_and_only_describes(world: World) -> None:
    deployment = world.deployment()
    list(examine(deployment))
    described = ("describe_", "list_", "get_")
    assert all(call.startswith(described) for call in world.aws.calls)
    assert {c for calls in aws.READS.values() for c in calls} >= set(world.aws.calls)
    assert deployment.aws.calls == len(world.aws.calls) < 120
    with pytest.raises(ValueError, match="only reads"):
        deployment.aws.ask("dynamodb", "delete_table", TableName="x")


def _set(place: Callable[[World], Any], **values: Any) -> Break:
    return lambda world: place(world).update(values)


def _table(role: str) -> Callable[[World], Any]:
    return lambda world: world.aws.tables[world.table(role)]


def _function(role: str) -> Callable[[World], Any]:
    return lambda world: world.aws.functions[world.aws.name(role)]


def _mapping(role: str) -> Callable[[World], Any]:
    return lambda world: world.aws.mappings_of(role)[0]


def _alarm(world: World) -> Any:
    return next(iter(world.aws.alarms.values()))


def _queue(part: str) -> Callable[[World], Any]:
    return lambda world: world.aws.queues[world.url(part)]


def _doorbells(world: World) -> Any:
    return world.aws.queues[world.environment["FAIRBOX_DOORBELL_QUEUE_URL"]]


def _delete(kind: str, name: Callable[[World], str]) -> Break:
    return lambda world: getattr(world.aws, kind).pop(name(world))


def _metric(name: str, role: str, value: float | None) -> Break:
    def change(world: World) -> None:
        world.aws.values[name, world.aws.name(role) if role else "fairbox"] = value

    return change


def _stream_took(world: World, bytes_a_second: float, quota: float = 2**20) -> None:
    name = world.aws.functions[world.aws.name("mark_delivered")]["Environment"]["Variables"][
        "FAIRBOX_ARCHIVE_STREAM"
    ]
    world.aws.values["IncomingBytes", name] = bytes_a_second * 300
    world.aws.values["BytesPerSecondLimit", name] = quota


def _throttled(world: World) -> None:
    _stream_took(world, 1000)
    (name,) = (n for metric, n in world.aws.values if metric == "IncomingBytes")
    world.aws.values["ThrottledRecords", name] = 12


def _concurrency(world: World) -> None:
    world.aws.concurrency[world.aws.name("deliver_shard")] = 0


def _backups(world: World) -> None:
    world.aws.backups[world.table("outbox")] = "DISABLED"


def _failed_stack(world: World) -> None:
    world.aws.stacks["FairboxApi"][0]["ResourceStatus"] = "UPDATE_FAILED"


def _other_tables(world: World) -> None:
    world.environment["FAIRBOX_OUTBOX_TABLE"] = world.table("deliveries")


def _unset(world: World) -> None:
    del world.environment["FAIRBOX_BODIES_BUCKET"]


BROKEN: dict[str, tuple[Break, str, str, str]] = {
    "a table is gone": (
        _delete("tables", lambda w: w.table("deliveries")),
        "tables", "fail", "deploy",
    ),
    "a table is being made": (
        _set(_table("outbox"), TableStatus="CREATING"), "tables", "fail", "Wait",
    ),
    "a table has other keys": (
        _set(_table("outbox"), KeySchema=[]), "tables", "fail", "another table",
    ),
    "a table is provisioned": (
        _set(_table("outbox"), BillingModeSummary={}), "tables", "warn", "PAY_PER_REQUEST",
    ),
    "a table may be deleted": (
        _set(_table("outbox"), DeletionProtectionEnabled=False), "tables", "warn", "retain",
    ),
    "an index is gone": (
        _set(_table("outbox"), GlobalSecondaryIndexes=[]), "indexes", "fail", "make deploy",
    ),
    "a stream is off": (
        _set(_table("outbox"), StreamSpecification={"StreamEnabled": False}),
        "streams", "fail", "fairbox outbox sweep",
    ),
    "a stream lacks old images": (
        _set(
            _table("outbox"),
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        ),
        "streams", "fail", "Deploy",
    ),
    "messages expire": (
        lambda w: w.aws.expiry.update(
            {w.table("outbox"): {"TimeToLiveStatus": "ENABLED", "AttributeName": "x"}}
        ),
        "expiry", "fail", "lost",
    ),
    "rows do not expire": (
        lambda w: w.aws.expiry.update({w.table("deliveries"): {"TimeToLiveStatus": "DISABLED"}}),
        "expiry", "fail", "grows",
    ),
    "nothing can be recovered": (_backups, "backups", "warn", "Switch it on"),
    "a deployment failed": (_failed_stack, "stacks", "fail", "events"),
    "a function was deleted": (
        _delete("functions", lambda w: w.aws.name("sweep")), "functions", "fail", "make deploy",
    ),
    "a function failed": (
        _set(_function("relay"), State="Failed"), "functions", "fail", "make deploy",
    ),
    "an update failed": (
        _set(_function("relay"), LastUpdateStatus="Failed"), "functions", "fail", "make deploy",
    ),
    "a runtime is another": (
        _set(_function("api"), Runtime="python3.9"), "functions", "warn", "python3.13",
    ),
    "a function may not run": (
        _concurrency, "functions", "fail", "delete-function-concurrency",
    ),
    "the environment is of another deployment": (
        _other_tables, "functions", "fail", "correct the environment",
    ),
    "a mapping is disabled": (
        _set(_mapping("relay"), State="Disabled"), "triggers", "fail", "--enabled",
    ),
    "a mapping was deleted": (
        _delete("mappings", lambda w: str(w.aws.mappings_of("mark_delivered")[0]["UUID"])),
        "triggers", "fail", "make deploy",
    ),
    "a mapping has a problem": (
        _set(_mapping("relay"), LastProcessingResult="PROBLEM: access denied"),
        "triggers", "fail", "log of relay",
    ),
    "a mapping has no filter": (
        _set(_mapping("relay"), FilterCriteria={}), "triggers", "fail", "make deploy",
    ),
    "a mapping tries for a day": (
        _set(_mapping("mark_delivered"), MaximumRetryAttempts=10), "triggers", "fail", "deploy",
    ),
    "a mapping loses what it gives up": (
        _set(_mapping("mark_delivered"), DestinationConfig={}), "triggers", "fail", "deploy",
    ),
    "marking runs in parallel": (
        _set(_mapping("mark_delivered"), ParallelizationFactor=4), "triggers", "fail", "deploy",
    ),
    "a mapping fails batches whole": (
        _set(_mapping("deliver_shard"), FunctionResponseTypes=[]), "triggers", "fail", "deploy",
    ),
    "a mapping reads an old stream": (
        lambda w: w.aws.mappings_of("relay")[0].update(
            EventSourceArn=w.aws.tables[w.table("outbox")]["LatestStreamArn"] + "-old"
        ),
        "triggers", "fail", "deploy",
    ),
    "a clock is off": (
        lambda w: w.aws.rule_of("sweep").update(State="DISABLED"),
        "schedules", "fail", "enable-rule",
    ),
    "a clock was deleted": (
        _delete("rules", lambda w: str(w.aws.rule_of("repair")["Name"])),
        "schedules", "fail", "make deploy",
    ),
    "a queue hides too short": (
        _set(_doorbells, VisibilityTimeout="5"), "queues", "fail", "Two functions",
    ),
    "a queue is gone": (_delete("queues", lambda w: w.url("AcksQueue")), "queues", "fail", "URL"),
    "doorbells are not in order": (
        lambda w: _doorbells(w).pop("FifoQueue"), "queues", "fail", "DoorbellsNow",
    ),
    "failures come for good": (
        lambda w: _queue("AcksQueue")(w).pop("RedrivePolicy"), "queues", "warn", "redrive policy",
    ),
    "something was put aside": (
        _set(_queue("AcksDeadLetters"), ApproximateNumberOfMessages="3"),
        "dead-letter-queues", "fail", "start-message-move-task",
    ),
    "an alarm was deleted": (
        _delete("alarms", lambda w: str(_alarm(w)["AlarmName"])), "alarms", "fail", "Deploy",
    ),
    "an alarm rings": (
        _set(_alarm, StateValue="ALARM"), "alarms", "fail", "runbook.md",
    ),
    "an alarm tells nobody": (
        _set(_alarm, ActionsEnabled=False), "alarms", "warn", "enable-alarm-actions",
    ),
    "the relay is behind": (_metric("IteratorAge", "relay", 90_000), "lag", "warn", "throttled"),
    "the marking is lost": (
        _metric("IteratorAge", "mark_delivered", 4e6), "lag", "fail", "after a day",
    ),
    "a message is old": (_metric("OldestAge", "", 900), "lag", "warn", "outbox outstanding"),
    "nobody counts": (
        _metric("OldestAge", "", None), "lag", "warn", "count_outstanding",
    ),
    "the marking is never started": (
        _metric("IteratorAge", "mark_delivered", None), "lag", "fail", "trigger is enabled",
    ),
    "the archive's stream is nearly full": (
        lambda w: _stream_took(w, 0.71 * 2**20), "archive", "warn", "Direct PUT quota",
    ),
    "the archive's stream throttles": (_throttled, "archive", "warn", "Service Quotas"),
    "lines go past the archive's stream": (
        _metric("ArchiveBypassed", "", 7000), "archive", "warn", "log of mark_delivered",
    ),
    "objects wait for the archive": (
        _metric("ArchiveWaiting", "", 3), "archive", "fail", "its key",
    ),
    "a setting is missing": (_unset, "settings", "warn", "export FAIRBOX_BODIES_BUCKET"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_it_finds_that(world: World, what: str) -> None:
    change, check, status, advice = BROKEN[what]
    change(world)
    found = [f for f in bad(world.examine()) if f.check == check]
    assert {f.status for f in found} == {status}, found
    assert advice in found[0].advice
    assert found[0].detail


def test_an_archive_within_its_quota_is_sound(world: World) -> None:
    _stream_took(world, 0.69 * 5 * 2**20, 5 * 2**20)
    found = {f.subject.split()[0]: f for f in world.examine("archive")}
    assert {f.status for f in found.values()} == {"ok"}
    assert found["stream"].detail == "it took 3.45 of 5.00 MiB/s"


@pytest.mark.parametrize(
    ("own", "status"),
    [("0.1.9", "ok"), ("0.2.0", "warn"), ("0.0.4", "warn"), ("0.3.0", "fail"), ("1.1.0", "fail")],
)
def test_the_library_fits_one_minor_version_around_the_deployed_one(
    world: World, own: str, status: str
) -> None:
    world.aws.outputs["FairboxDelivery"]["Version"] = "0.1.0"
    (finding,) = world.examine("version", version=own)
    assert (finding.status, finding.detail) == (status, "deployed: 0.1.0")


@pytest.mark.parametrize("said", ["blue", "", "7"])
def test_an_output_that_is_no_version_is_said_to_be_none(world: World, said: str) -> None:
    world.aws.outputs["FairboxDelivery"]["Version"] = said
    (finding,) = world.examine("version")
    assert (finding.status, finding.advice) == ("not checked", "Name it with --stack.")


FEEDS_BROKEN: dict[str, tuple[Break, str, str]] = {
    "nobody pushes": (
        _delete("mappings", lambda w: str(w.aws.mappings_of("feeds_visit")[0]["UUID"])),
        "triggers", "make deploy",
    ),
    "ringing is off": (
        _set(_mapping("feeds_ring"), State="Disabled"), "triggers", "--enabled",
    ),
    "a function of feeds was deleted": (
        _delete("functions", lambda w: w.aws.name("feeds_authorize")), "functions", "make deploy",
    ),
    "a function of feeds is of another deployment": (
        lambda w: w.environment.update(FAIRBOX_FEEDS_TABLE=w.table("batches")),
        "functions", "correct the environment",
    ),
    "the stream of feeds is off": (
        _set(_table("feeds"), StreamSpecification={}), "streams", "Deploy",
    ),
    "connections do not expire": (
        lambda w: w.aws.expiry.update({w.table("feeds"): {"TimeToLiveStatus": "DISABLED"}}),
        "expiry", "grows",
    ),
    "doorbells of feeds were given up": (
        _set(_queue("DoorbellDeadLetters"), ApproximateNumberOfMessages="3"),
        "dead-letter-queues", "start-message-move-task",
    ),
}  # fmt: skip


class TestFeeds:
    @pytest.fixture
    def world(self, with_feeds: Described) -> World:
        return fresh(with_feeds)

    def test_nothing_is_wrong_with_them_as_they_are_deployed(self, world: World) -> None:
        findings = world.examine()
        assert [(f.check, f.status) for f in bad(findings)] == [("placement", "not checked")]
        assert len(world.aws.calls) < 120
        subjects = {(f.check, f.subject) for f in findings}
        assert {("stacks", "FairboxFeeds"), ("functions", "feeds_poll")} <= subjects

    @pytest.mark.parametrize("what", FEEDS_BROKEN)
    def test_it_finds_that(self, world: World, what: str) -> None:
        change, check, advice = FEEDS_BROKEN[what]
        change(world)
        found = [f for f in bad(world.examine()) if f.check == check]
        assert {f.status for f in found} == {"fail"}, found
        assert advice in found[0].advice

    def test_a_feed_that_is_a_destination_must_be_there(self, world: World) -> None:
        world.environment["FAIRBOX_FEEDS_TABLE"] = FEEDS
        world.app.feeds.create(Feed("prices"))
        world.app.outbox.create_topic(Topic("all", shards=1))
        for n, address in enumerate(("feed:prices", "feed:gone")):
            world.app.outbox.tables.topics.add_subscription(Subscription("all", f"s{n}", address))
        found = {f.subject: (f.status, f.advice) for f in world.examine("destinations")}
        assert found == {
            "feed:prices": ("ok", ""),
            "feed:gone": ("fail", "fairbox feed create gone"),
        }
        del world.environment["FAIRBOX_FEEDS_TABLE"]
        assert {f.status for f in world.examine("destinations")} == {"fail"}


class TestWork:
    def test_an_overdue_shard_is_found(self, world: World) -> None:
        world.app.add_topic("late", "billing")
        world.app.add(topic="late")
        world.app.mark()
        world.app.clock.advance(300)
        assert world.examine("sweep")[0].status == "ok"
        world.app.clock.advance(120)
        (finding,) = world.examine("sweep")
        assert (finding.status, finding.subject) == ("fail", "late")
        assert "fairbox outbox sweep" in finding.advice
        world.app.sweep()
        world.app.run(1)
        assert world.examine("sweep")[0].status == "ok"

    def test_a_row_that_counts_wrongly_is_found(self, world: World) -> None:
        world.app.add(3)
        world.app.mark()
        assert [f.status for f in world.examine("counts")] == ["ok"]
        world.app.add()
        (finding,) = world.examine("counts")
        assert finding.status == "warn"
        assert finding.detail == "4 messages lie there, its row counts 3"
        assert "mark_delivered" in finding.advice

    def test_dead_letters_and_the_keys_that_wait_for_them_are_found(self, world: World) -> None:
        app = world.app
        app.add_topic("steps", "billing", ordering="key", on_dead="block")
        app.at("billing", "steps").answer = lambda _: POISONED
        app.add(2, "steps", partition_key="k")
        app.run(60)
        (dead,), (held,) = world.examine("dead-letters"), world.examine("held-keys")
        assert (dead.status, dead.detail) == ("warn", "1 dead letters")
        assert "fairbox dlq redrive steps" in dead.advice
        assert (held.status, held.subject) == ("warn", "topic steps")
        assert held.detail.startswith("1 keys wait")

    def test_a_misplaced_message_is_found_by_a_scan_that_is_asked_for(self, world: World) -> None:
        world.app.add_topic("wide", shards=4)
        (ref,) = world.app.add(topic="wide", partition_key="k")
        (item,) = world.app.lying()
        other = f"ready#wide#0#{(ref.shard + 1) % 4}"
        assert world.examine("placement", placement=True)[0].status == "ok"
        world.app.engine.put_item(TableName=OUTBOX, Item=item | {"pk": {"S": other}})
        (skipped,) = world.examine("placement")
        assert (skipped.status, skipped.advice) == ("not checked", "fairbox doctor --placement")
        (finding,) = world.examine("placement", placement=True)
        assert finding.status == "warn"
        assert ref.id in finding.detail
        assert "fairbox outbox misplaced" in finding.advice

    def test_an_item_of_a_newer_release_asks_for_an_upgrade(self, world: World) -> None:
        (row,) = [i for i in world.app.engine.items(OUTBOX) if i["sk"]["S"] == "topic#orders"]
        world.app.engine.put_item(TableName=OUTBOX, Item=row | {"cv": {"N": "2"}})
        (finding,) = world.examine("topics")
        assert (finding.status, finding.advice) == (
            "fail", "Upgrade this library: docs/how-to/upgrade.md."
        )  # fmt: skip


class TestConfiguration:
    def test_what_is_paused_or_has_an_open_circuit_is_found(self, world: World) -> None:
        app = world.app
        app.add_topic("news", "press", "radio")
        app.outbox.pause_topic("orders", wait=False)
        app.outbox.pause_subscription("news", "press", reason="holiday")
        found = {f.subject: f for f in world.examine("topics")}
        assert found.keys() == {"topic orders", "subscription news/press"}
        assert "holiday" in found["subscription news/press"].detail
        assert found["subscription news/press"].advice == "fairbox subscription resume news press"

    def test_an_open_circuit_is_found(self, world: World) -> None:
        from fairbox.dispatch.ports import Outcome  # noqa: PLC0415 - this test alone needs it

        app = world.app
        app.add_topic("news", "press")
        app.at("press", "news").answer = lambda _: Outcome("unreachable", "down")
        app.add(20, "news")
        app.run(30)
        (finding,) = world.examine("topics")
        assert finding.status == "warn"
        assert "circuit is open: down" in finding.detail.replace("half-open", "open")

    def test_destinations_that_do_not_exist_are_found(self, world: World) -> None:
        arn = "arn:aws:{}:us-east-1:111122223333:{}"
        world.aws.others = {arn.format("sns", "news"), "bus", arn.format("kinesis", "stream/s")}
        world.app.outbox.create_topic(Topic("all", shards=1))
        there = [
            f"sqs:{world.url('AcksQueue')}", f"sns:{arn.format('sns', 'news')}", "events:bus",
            f"kinesis:{arn.format('kinesis', 'stream/s')}", f"lambda:{world.aws.name('api')}",
            "topic:orders",
        ]  # fmt: skip
        gone = [
            "sqs:https://sqs.us-east-1.amazonaws.com/1/gone", f"sns:{arn.format('sns', 'gone')}",
            "events:gone", f"kinesis:{arn.format('kinesis', 'stream/gone')}", "lambda:gone",
            "topic:gone",
        ]  # fmt: skip
        for n, address in enumerate([*there, *gone, "https://example.com/in"]):
            world.app.outbox.tables.topics.add_subscription(Subscription("all", f"s{n}", address))
        found = {f.subject: f for f in world.examine("destinations")}
        assert {found[address].status for address in there} == {"ok"}
        assert {found[address].status for address in gone} == {"fail"}
        assert found["topic:gone"].advice == "fairbox topic create gone"
        assert found["https://example.com/in"].status == "warn"  # nothing signs its requests
        sending = world.aws.functions[world.aws.name("deliver_shard")]
        sending["Environment"]["Variables"]["FAIRBOX_WEBHOOK_SECRETS"] = "arn"
        found = {f.subject: f for f in world.examine("destinations")}
        assert found["https://example.com/in"].status == "not checked"

    def test_what_nobody_expected_of_one_is_a_finding_and_the_others_go_on(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = f"sqs:{world.url('AcksQueue')}"
        for n, address in enumerate(["sqs:billing", there]):
            world.app.outbox.tables.topics.add_subscription(
                Subscription("orders", f"s{n}", address)
            )
        asked = Aws.ask

        def ask(self: Aws, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
            if arguments.get("QueueUrl") == "billing":
                raise ValueError("Invalid endpoint: billing")  # as botocore does
            return asked(self, service, operation, **arguments)

        monkeypatch.setattr(Aws, "ask", ask)
        found = {f.subject: f for f in world.examine("destinations")}
        assert (found["sqs:billing"].status, found[there].status) == ("warn", "ok")
        assert "ValueError: Invalid endpoint: billing" in found["sqs:billing"].detail
        monkeypatch.setattr(Deployment, "rows", property(lambda _: 1 / 0))
        last = {f.check: f for f in world.examine()}
        assert "ZeroDivisionError" in last["sweep"].detail
        assert last["permissions"].status == "ok"

    def test_a_destination_is_asked_for_in_its_own_region(self, world: World) -> None:
        arn = "arn:aws:{}:{}:111122223333:{}"
        there = {
            "sns": arn.format("sns", "eu-west-1", "news"),
            "kinesis": arn.format("kinesis", "ap-south-1", "stream/s"),
        }
        world.aws.others = set(there.values())
        world.app.outbox.create_topic(Topic("all", shards=1))
        addresses = [f"{service}:{arn}" for service, arn in there.items()]
        for n, address in enumerate([*addresses, "events:bus"]):
            world.app.outbox.tables.topics.add_subscription(Subscription("all", f"s{n}", address))
        found = {f.subject: f for f in world.examine("destinations")}
        assert {found[address].status for address in addresses} == {"ok"}
        assert world.aws.regions == [("sns", "eu-west-1"), ("kinesis", "ap-south-1")]


class TestWhatCannotBeAsked:
    @pytest.mark.parametrize("operation", sorted({c for cs in aws.READS.values() for c in cs}))
    def test_what_is_denied_is_named_and_the_others_go_on(
        self, world: World, operation: str
    ) -> None:
        world.app.outbox.create_topic(Topic("all", shards=1))
        for n, address in enumerate(("sns:a", "events:b", "kinesis:c")):
            world.app.outbox.tables.topics.add_subscription(Subscription("all", f"s{n}", address))
        world.aws.others = {"a", "b", "c"}
        world.aws.denied = {operation}
        findings = world.examine()
        assert {f.check for f in findings} == {check.name for check in checks()}
        denied = [f for f in findings if f.detail.startswith("denied: the caller lacks ")]
        assert denied
        assert {f.status for f in denied} == {"not checked"}
        action = denied[0].detail.rpartition(" ")[2]
        assert action.split(":")[1].lower() == operation.replace("_", "")
        assert not [f for f in findings if f.status == "fail"]
        permissions = findings[-1]
        assert (permissions.check, permissions.status) == ("permissions", "warn")
        assert action in permissions.detail

    @pytest.mark.parametrize("code", ["ThrottlingException", ""])
    def test_what_is_throttled_or_does_not_answer_is_asked_again(
        self, world: World, code: str
    ) -> None:
        answers: list[Any] = [
            refused(code, "x") if code else EndpointConnectionError(endpoint_url="https://x")
        ] * 2
        client = world.aws.client("dynamodb")

        class Busy:
            def describe_table(self, **asked: Any) -> Any:
                if answers:
                    raise answers.pop()
                return client.describe_table(**asked)

        asking = Aws(lambda *_: Busy(), world.app.clock.sleep)
        before = world.app.clock.now()
        found = asking.ask("dynamodb", "describe_table", TableName=world.table("outbox"))
        assert found["Table"]["TableStatus"] == "ACTIVE"
        assert (asking.calls, world.app.clock.now() - before) == (3, 3.0)
        answers += [EndpointConnectionError(endpoint_url="https://x")] * 3
        with pytest.raises(NotAnswered, match="did not answer: EndpointConnectionError"):
            asking.ask("dynamodb", "describe_table", TableName=world.table("outbox"))

    def test_what_an_emulator_does_not_know_is_not_checked(self, world: World) -> None:
        world.aws.unknown = {"describe_continuous_backups"}
        findings = world.examine("backups")
        assert {f.status for f in findings} == {"not checked"}
        assert "UnknownOperationException" in findings[0].detail

    def test_without_the_stacks_what_the_environment_names_is_checked(self, world: World) -> None:
        world.aws.stacks = {}
        found = {f.check: f for f in world.examine()}
        for name in ("stacks", "functions", "triggers", "schedules", "alarms"):
            assert found[name].status == "not checked"
            assert "with --name, or its stacks with --stack" in found[name].advice
        assert found["tables"].status == found["queues"].status == "ok"
        assert found["dead-letter-queues"].status == "ok"

    def test_on_this_machine_nothing_is_asked_of_what_only_aws_has(self, world: World) -> None:
        for table in world.aws.tables.values():
            table["DeletionProtectionEnabled"] = False
        world.aws.values.clear()
        assert {f.check for f in bad(world.examine("tables", "lag"))} == {"tables", "lag"}
        assert bad(world.examine("tables", "lag", local=True)) == []

    def test_a_check_of_no_name_is_refused(self, world: World) -> None:
        with pytest.raises(InvalidInput, match="one of settings, tables"):
            world.examine("nothing")


def test_who_reads_everything_may_ask_all_but_about_other_services_destinations(
    assembly: Assembly,
) -> None:
    (document,) = (
        properties["PolicyDocument"]
        for name, properties in assembly.of_type("AWS::IAM::ManagedPolicy").items()
        if name.startswith("FairboxAccess/Reader")
    )
    allowed = {a for s in document["Statement"] for a in listed(s["Action"])}
    assert allowed >= EXAMINES


def test_the_reference_page_has_every_check() -> None:
    page = (ROOT / "docs/reference/doctor.md").read_text()
    text = " ".join(page.split())
    for check in checks():
        assert f"### {check.name}" in page
        assert check.summary in text


def test_findings_are_json(world: World) -> None:
    for finding in world.examine():
        assert json.loads(json.dumps(finding.fields())).keys() == {
            "check", "subject", "status", "detail", "advice",
        }  # fmt: skip
