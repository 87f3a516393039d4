"""The stack of monitoring: alarms notify somebody, and a dashboard shows the cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.model.deployment import DEFAULT_NAME
from fairbox.observability import metrics
from fairbox_cdk.components import metrics as shown

from tests.stacks.assembly import plain, variables
from tests.stacks.conftest import ROOT, SETTINGS, synthesise

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

FUNCTIONS = (
    "Relay",
    "MarkDelivered",
    "Sweep",
    "DeliverShard",
    "Repair",
    "AckBatches",
    "CascadeBatches",
    "CleanOrphans",
    "Api",
    "CountOutstanding",
)


def alarms(assembly: Assembly) -> dict[str, dict[str, Any]]:
    return {
        name.split("/")[1]: one for name, one in assembly.of_type("AWS::CloudWatch::Alarm").items()
    }


def test_every_alarm_tells_the_topic_of_trouble_and_of_its_end(assembly: Assembly) -> None:
    for name, alarm in alarms(assembly).items():
        for key in ("AlarmActions", "OKActions"):
            told = [plain(one) for one in alarm[key]]
            assert told == ["AlarmTopic"], name
        assert alarm["AlarmDescription"]


def test_alarms_may_publish_to_the_topic_that_is_made_and_only_over_tls(
    assembly: Assembly,
) -> None:
    (policy,) = assembly.of_type("AWS::SNS::TopicPolicy").values()
    statements = policy["PolicyDocument"]["Statement"]
    (allowed,) = [one for one in statements if one["Effect"] == "Allow"]
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }
    (denied,) = [one for one in statements if one["Effect"] == "Deny"]
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_alarms_go_to_the_topic_of_the_settings_and_none_to_the_one_that_is_made(
    checked: tuple[Assembly, object],
) -> None:
    assembly = checked[0]
    for alarm in alarms(assembly).values():
        assert [plain(one) for one in alarm["AlarmActions"]] == [SETTINGS["alarm_topic_arn"]]


def test_every_alarm_has_a_name_and_points_to_its_section_of_the_runbook(
    checked: tuple[Assembly, object], other: Assembly
) -> None:
    runbook = (ROOT / "docs/how-to/runbook.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", runbook, re.MULTILINE)
    sections = {heading.lower().replace(" ", "-") for heading in headings}
    for of, deployment in ((checked[0], "Fairbox"), (other, "FairboxTwo")):
        linked = set()
        for name, alarm in alarms(of).items():
            assert alarm["AlarmName"] == f"{deployment}-{name}"
            words, _, link = alarm["AlarmDescription"].rpartition(" ")
            page, _, section = link.partition("#")
            assert words.endswith("."), name
            assert page == "docs/how-to/runbook.md"
            linked.add(section)
        assert linked == sections if of is checked[0] else linked < sections


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("what", ["Errors", "Throttles"])
def test_errors_and_throttles_of_a_function_are_told(
    assembly: Assembly, function: str, what: str
) -> None:
    alarm = alarms(assembly)[f"{function}{what}"]
    assert alarm["Namespace"] == "AWS/Lambda"
    assert alarm["MetricName"] == what
    (dimension,) = alarm["Dimensions"]
    assert plain(dimension["Value"]) == f"{function}Function"
    assert (alarm["Threshold"], alarm["Statistic"]) == (0, "Sum")


@pytest.mark.parametrize(
    ("name", "metric", "threshold"),
    [
        ("OutstandingCount", "OutstandingCount", 100_000),
        ("OldestAge", "OldestAge", 600),
        ("DeadCount", "DeadCount", 0),
        ("OpenCircuits", "OpenCircuits", 0),
        ("ReceiversGone", "ReceiversGone", 0),
        ("LostReceipts", "LostReceipts", 100),
        ("StalledBatches", "StalledBatches", 0),
        ("BatchAcksDropped", "BatchAcksDropped", 0),
    ],
)
def test_what_waits_too_long_or_died_is_told(
    assembly: Assembly, name: str, metric: str, threshold: int
) -> None:
    alarm = alarms(assembly)[name]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("Fairbox", metric)
    assert alarm["Dimensions"] == [{"Name": "service", "Value": "fairbox"}]
    assert alarm["Threshold"] == threshold
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"


def test_a_delay_that_grows_for_a_quarter_of_an_hour_is_told(assembly: Assembly) -> None:
    alarm = alarms(assembly)["GrowingDelay"]
    figure, age = sorted(alarm["Metrics"], key=lambda one: "MetricStat" in one)
    assert figure["Expression"] == "IF(DIFF(figure) > 0, figure, 0)"
    assert (age["Id"], age["MetricStat"]["Metric"]["MetricName"]) == ("figure", "OldestAge")
    assert alarm["EvaluationPeriods"] == 15
    assert alarm["Threshold"] == 120


def test_a_deployment_without_data_is_quiet_and_the_end_of_the_count_is_told(
    assembly: Assembly,
) -> None:
    """An alarm that is made without data is in INSUFFICIENT_DATA: only a change of it notifies."""
    for name, alarm in alarms(assembly).items():
        if name.endswith("Silence"):
            continue
        counts = name == "OutstandingCount"
        assert alarm["TreatMissingData"] == ("missing" if counts else "notBreaching"), name
        told = [plain(one) for one in alarm.get("InsufficientDataActions", [])]
        assert told == (["AlarmTopic"] if counts else []), name


def test_the_page_of_costs_counts_what_there_is(assembly: Assembly) -> None:
    page = (ROOT / "docs/how-to/before-production.md").read_text(encoding="utf-8")
    # an alarm on an expression is paid for each metric in it
    there = sum(len(one.get("Metrics", [0, 1])) - 1 for one in alarms(assembly).values())
    assert f"| {there} alarms at $0.10 | ${there / 10:.2f} |" in page
    sources = assembly.of_type("AWS::Lambda::EventSourceMapping").values()
    queues = sum("StreamArn" not in plain(source["EventSourceArn"]) for source in sources)
    assert f"Lambda asks {queues} queues" in page


@pytest.mark.parametrize("function", ["Relay", "MarkDelivered", "CascadeBatches"])
def test_who_falls_behind_the_stream_is_told(assembly: Assembly, function: str) -> None:
    alarm = alarms(assembly)[f"{function}IteratorAge"]
    assert (alarm["MetricName"], alarm["Statistic"]) == ("IteratorAge", "Maximum")
    assert alarm["Threshold"] == 60_000
    assert plain(alarm["Dimensions"][0]["Value"]) == f"{function}Function"


def test_stream_records_that_cannot_be_replayed_are_told_long_before_they_expire(
    assembly: Assembly,
) -> None:
    alarm = alarms(assembly)["GivenUpAge"]
    assert (alarm["MetricName"], alarm["Statistic"]) == ("GivenUpAge", "Maximum")
    assert (alarm["Period"], alarm["Threshold"]) == (3600, 6)
    rules = assembly.of_type("AWS::S3::Bucket")["FairboxStorage/Failures"]
    days = [r.get("ExpirationInDays") for r in rules["LifecycleConfiguration"]["Rules"]]
    assert alarm["Threshold"] < min(filter(None, days)) * 24 / 2


@pytest.mark.parametrize(
    "queue",
    ["DoorbellsNowDeadLetters", "DoorbellsApartDeadLetters", "DoorbellsLaterDeadLetters"],
)
def test_a_doorbell_put_aside_is_told(assembly: Assembly, queue: str) -> None:
    alarm = alarms(assembly)[f"{queue}NotEmpty"]
    assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert alarm["Threshold"] == 0
    assert plain(alarm["Dimensions"][0]["Value"]) == f"{queue}.QueueName"


def test_acks_put_aside_are_told(assembly: Assembly) -> None:
    alarm = alarms(assembly)["AcksDeadLettersNotEmpty"]
    assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert alarm["Threshold"] == 0
    assert plain(alarm["Dimensions"][0]["Value"]) == "AcksDeadLetters.QueueName"


def test_batches_that_stand_still_are_told_by_the_hour_that_counts_them(
    assembly: Assembly,
) -> None:
    alarm = alarms(assembly)["StalledBatches"]
    assert (alarm["Period"], alarm["Statistic"]) == (3600, "Maximum")
    assert "24 h" in alarm["AlarmDescription"]
    alarm = alarms(assembly)["BatchAcksDropped"]
    assert (alarm["Period"], alarm["Statistic"]) == (300, "Sum")


def test_metrics_are_named_as_the_functions_write_them() -> None:
    named = {n: v for n, v in vars(shown).items() if n.isupper() and isinstance(v, str)}
    del named["METRICS_NAMESPACE"]  # a token, which each deployment resolves
    assert named == {n: getattr(metrics, n) for n in named}
    assert metrics.NAMESPACE == DEFAULT_NAME


def test_an_archive_that_nothing_reaches_is_told(assembly: Assembly) -> None:
    alarm = alarms(assembly)["ArchiveAge"]
    assert alarm["MetricName"] == "DeliveryToS3.DataFreshness"
    assert plain(alarm["Dimensions"][0]["Value"]) == "ArchiveMembers"


def test_what_waits_for_the_archive_is_told_at_once_and_until_repair_has_moved_it(
    assembly: Assembly,
) -> None:
    alarm = alarms(assembly)["ArchiveWaiting"]
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == (
        "ArchiveWaiting", "Sum", 0,
    )  # fmt: skip
    assert alarm["DatapointsToAlarm"] == 1
    assert alarm["Period"] * alarm["EvaluationPeriods"] > 3600  # repair counts again each hour


def test_an_archive_that_firehose_has_not_taken_for_an_hour_is_told(assembly: Assembly) -> None:
    alarm = alarms(assembly)["ArchiveBypassed"]
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (0, "notBreaching")
    assert alarm["Period"] * alarm["EvaluationPeriods"] == 3600
    assert "DatapointsToAlarm" not in alarm


LEVELS = ("totals", "busiest", "all")


@pytest.fixture(scope="module")
def assemblies(assembly: Assembly, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Assembly]:
    """The application with each value of `metrics_detail`."""
    return {
        level: assembly
        if level == "busiest"
        else synthesise(tmp_path_factory.mktemp(level), {"metrics_detail": level})
        for level in LEVELS
    }


def dashboard(assembly: Assembly) -> str:
    (found,) = assembly.of_type("AWS::CloudWatch::Dashboard").values()
    return plain(found["DashboardBody"])


@pytest.mark.extended  # a synthesis each
@pytest.mark.parametrize("level", LEVELS)
def test_functions_that_write_figures_of_topics_have_the_setting_and_no_others(
    assemblies: dict[str, Assembly], level: str
) -> None:
    found = {
        name: variables(properties).get("FAIRBOX_METRICS_DETAIL")
        for name, properties in assemblies[level].functions().items()
    }
    assert {name for name, value in found.items() if value == level} == {
        "relay", "deliver_shard", "count_outstanding", "sweep",
    }  # fmt: skip
    assert set(found.values()) == {level, None}


@pytest.mark.extended  # a synthesis each
@pytest.mark.parametrize("level", LEVELS)
def test_only_who_ranks_topics_may_write_the_list(
    assemblies: dict[str, Assembly], level: str
) -> None:
    allowed = assemblies[level].permissions("CountOutstandingRole")
    assert ("dynamodb:UpdateItem" in allowed["Outbox"]) == (level == "busiest")
    assert ("Deliveries" in allowed) == (level == "busiest")


@pytest.mark.extended  # a synthesis each
@pytest.mark.parametrize("level", LEVELS)
def test_alarms_are_the_same_with_each_detail(assemblies: dict[str, Assembly], level: str) -> None:
    assert alarms(assemblies[level]) == alarms(assemblies["busiest"])


def test_without_metrics_by_topic_the_dashboard_searches_for_none(
    assemblies: dict[str, Assembly],
) -> None:
    body = dashboard(assemblies["totals"])
    assert "SEARCH" not in body
    for metric in ("Sent", "Failed", "Retried", "Dead", "Delay", "OpenCircuits", "Received"):
        assert f'"{metric}"' in body, "over all topics"
    assert dashboard(assemblies["all"]) == dashboard(assemblies["busiest"]).replace(
        "`busiest`. Figures by topic are those of the 20 busiest topics, and of topics in trouble.",
        "`all`. Figures by topic are those of all topics.",
    )


def test_saved_queries_find_what_is_no_metric_in_the_logs_of_those_who_write_it(
    assembly: Assembly,
) -> None:
    found = {
        one["Name"].rpartition("/")[2]: (
            {plain(group) for group in one["LogGroupNames"]},
            one["QueryString"],
        )
        for one in assembly.of_type("AWS::Logs::QueryDefinition").values()
    }
    assert {title: groups for title, (groups, _) in found.items()} == {
        "Outstanding by topic": {"CountOutstandingLogs"},
        "Circuits by topic": {"CountOutstandingLogs"},
        "Deliveries by topic": {"RelayLogs", "DeliverShardLogs"},
        "Bytes by destination": {"RelayLogs", "DeliverShardLogs"},
    }
    names = {value for value in vars(metrics).values() if isinstance(value, str)}
    for title, (_, query) in found.items():
        fields = set(re.findall(r"(?:ispresent|sum|max|latest|count)\((\w+)\)", query))
        assert fields <= names | {"topic", "subscription"}, title
        (labels,) = re.findall(r" by ([\w, ]+)", query)
        assert set(labels.split(", ")) <= {"topic", "subscription", "destination"}, title


def test_the_dashboard_shows_each_topic_s_figures_and_everybody_s_health(
    assembly: Assembly,
) -> None:
    (dashboard,) = assembly.of_type("AWS::CloudWatch::Dashboard").values()
    body = plain(dashboard["DashboardBody"])
    for metric in (
        *("OutstandingCount", "OldestAge", "DeadCount"),
        *("Sent", "Failed", "Dead", "Retried", "Delay", "OpenCircuits"),
    ):
        assert f'{{Fairbox,service,topic}} MetricName=\\"{metric}\\"' in body
    for metric in ("OutstandingCount", "OldestAge", "DeadCount", "Acked"):
        assert f'{{Fairbox,service,queue,partition}} MetricName=\\"{metric}\\"' in body
    assert '{Fairbox,service,topic} MetricName=\\"Received\\"' in body
    for metric in ("Acked", "GivenBack", "LostReceipts"):
        assert f'"{metric}"' in body
    assert '{Fairbox,service,destination,topic} MetricName=\\"SentBytes\\"' in body
    for metric in ("Sent", "Failed", "Retried", "Dead", "Delay", "OpenCircuits"):
        assert f'{{Fairbox,service,topic,subscription}} MetricName=\\"{metric}\\"' in body
    assert '"PausedSubscriptions"' in body
    for metric in ("OpenBatches", "OldestBatchAge", "StalledBatches", "BatchesCompleted"):
        assert f'"{metric}"' in body
    for metric in ("BatchesOrphaned", "BatchAcks", "BatchAcksDropped"):
        assert f'"{metric}"' in body
    for metric in ("IteratorAge", "Errors", "Throttles", "Duration", "WriteThrottleEvents"):
        assert f'"{metric}"' in body
    assert body.count('"ApproximateNumberOfMessagesVisible"') == 8
    for function in FUNCTIONS:
        assert f"{function}Function" in body
