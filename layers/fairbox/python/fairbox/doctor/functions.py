"""Checks of the stacks, the functions, and what starts these: streams, queues, clocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from fairbox.doctor.aws import Missing
from fairbox.doctor.examined_deployment import DELIVERY, RULE, Deployment, Function, Resource
from fairbox.doctor.findings import Finding, Reporter, check, each
from fairbox.model.versions import VERSION_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


RUNTIME: Final = "python3.13"
STREAMS: Final[Mapping[str, str]] = {
    "relay": "outbox",
    "mark_delivered": "outbox",
    "cascade_batches": "batches",
    "feeds_ring": "feeds",
}
"""The table whose stream starts a function."""
QUEUES: Final[Mapping[str, int]] = {"deliver_shard": 2, "ack_batches": 1, "feeds_visit": 1}
"""The number of queues that start a function."""
CLOCKS: Final = ("sweep", "repair", "clean_orphans", "count_outstanding")
FEEDS: Final = ("feeds_authorize", "feeds_connect", "feeds_poll")
FUNCTIONS: Final = (*STREAMS, *QUEUES, *CLOCKS, "api", *FEEDS)
ENDLESS: Final = ("mark_delivered", "feeds_ring")
"""They try records again until these are too old: one sets bad ones aside, one leaves them out."""
_DEPLOY: Final = "Deploy the stacks again: make deploy."
_FINE: Final = ("", "OK", "No records processed")
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\b")


@check("stacks", "Stacks are deployed")
def stacks(deployment: Deployment) -> Iterator[Finding]:
    """Every resource of the stacks was made or changed to the end."""

    def examine(report: Reporter, stack: str) -> Iterator[Finding]:
        yield from report.bad_or_ok(
            report.fail(f"{r.logical} is {r.status}", f"See the stack's events. {_DEPLOY}")
            for r in deployment.resources()
            if r.stack == stack and not r.status.endswith("COMPLETE")
        )

    yield from each("stacks", deployment.stacks, examine)


@check("version", "Library and deployment fit")
def version(deployment: Deployment) -> Iterator[Finding]:
    """This library is of the deployed minor version, or one from it."""

    def examine(report: Reporter, own: str) -> Iterator[Finding]:
        name = next((s for s in deployment.stacks if DELIVERY in s), deployment.stacks[0])
        (stack,) = deployment.aws.ask("cloudformation", "describe_stacks", StackName=name)["Stacks"]
        outputs = {o["OutputKey"]: o["OutputValue"] for o in stack.get("Outputs", [])}
        deployed = outputs.get(VERSION_OUTPUT)

        if deployed is None or _VERSION.match(deployed) is None:
            yield report.unknown(f"stack {name} does not say its version", "Name it with --stack.")
        elif deployed == own or _minor(deployed) == _minor(own):
            yield report.ok(f"deployed: {deployed}")
        elif _near(_minor(deployed), _minor(own)):
            yield report.warn(
                f"deployed: {deployed}", "They fit; upgrade the older one: docs/how-to/upgrade.md."
            )
        else:
            yield report.fail(
                f"deployed: {deployed}",
                "They are more than one minor version apart: upgrade the older one.",
            )

    yield from each("version", [deployment.version], examine, lambda own: f"library {own}")


def _minor(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _near(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one[0] == other[0] and abs(one[1] - other[1]) <= 1


@check("functions", "Functions can run")
def functions(deployment: Deployment) -> Iterator[Finding]:
    """Each is there, active, updated to the end, of the runtime that is tested, and not stopped."""

    def examine(report: Reporter, role: str) -> Iterator[Finding]:
        found = deployment.functions.get(role)
        if found is None:
            detail = (
                f"{', '.join(deployment.gone)} was deleted"
                if deployment.gone
                else "it is not there"
            )
            yield report.fail(detail, _DEPLOY)
            return

        yield from report.bad_or_ok(_function(report, deployment, found))

    yield from each("functions", _deployed(deployment, FUNCTIONS), examine)


def _deployed(deployment: Deployment, roles: Iterable[str]) -> list[str]:
    return [role for role in roles if deployment.has_feeds or not role.startswith("feeds_")]


def _tables(role: str) -> tuple[str, ...]:
    """The tables that a function's environment names."""
    if not role.startswith("feeds_"):
        return ("outbox", "deliveries")
    return () if role == "feeds_authorize" else ("feeds",)


def _function(report: Reporter, deployment: Deployment, function: Function) -> Iterator[Finding]:
    configuration = function.configuration
    state = configuration.get("State", "Active")
    if state == "Failed":
        yield report.fail(f"it is {state}: {configuration.get('StateReason', '')}", _DEPLOY)
    elif state == "Pending":
        yield report.warn("it is being made", "Look again in a minute.")

    if configuration.get("LastUpdateStatus") == "Failed":
        reason = configuration.get("LastUpdateStatusReason", "")
        yield report.fail(f"its last update failed: {reason}", _DEPLOY)

    if configuration.get("Runtime") != RUNTIME:
        yield report.warn(
            f"it runs on {configuration.get('Runtime')}", f"{RUNTIME} is what tests run."
        )

    for mine in _tables(function.role):
        name = f"FAIRBOX_{mine.upper()}_TABLE"
        theirs = function.environment.get(name)
        # the doctor then looks at other tables than the functions work on
        if theirs != deployment.table_names.get(mine):
            yield report.fail(
                f"its {name} is {theirs}, not {deployment.table_names.get(mine)}",
                "Functions and environment speak of two deployments: correct the environment.",
            )

    answer = deployment.aws.ask("lambda", "get_function_concurrency", FunctionName=function.name)
    # this is how somebody stops a function in an emergency
    if answer.get("ReservedConcurrentExecutions") == 0:
        yield report.fail(
            "its concurrency is 0: it never runs",
            f"aws lambda delete-function-concurrency --function-name {function.name}, or {_DEPLOY}",
        )


@check("triggers", "Streams and queues start their functions")
def triggers(deployment: Deployment) -> Iterator[Finding]:
    """Each mapping is on, reads the right table or queue, bounds its tries, keeps what fails."""

    def examine(report: Reporter, role: str) -> Iterator[Finding]:
        found = [
            m for _, m in deployment.mappings if m and deployment.role_of(m["FunctionArn"]) == role
        ]

        wanted = QUEUES.get(role, 1)
        if len(found) < wanted:
            gone = [name for name, mapping in deployment.mappings if mapping is None]
            detail = f"{len(found)} of {wanted} mappings are there" + (
                f"; deleted: {', '.join(gone)}" if gone else ""
            )
            yield report.fail(detail, f"Nothing starts the function. {_DEPLOY}")

        for mapping in found:
            source = mapping["EventSourceArn"]
            own = Reporter(
                report.check, f"{role} from {source.split(':', 5)[-1].split('/stream')[0]}"
            )
            yield from own.bad_or_ok(_mapping(own, deployment, role, mapping))

    yield from each("triggers", _deployed(deployment, (*STREAMS, *QUEUES)), examine)


def _mapping(
    report: Reporter, deployment: Deployment, role: str, mapping: Mapping[str, Any]
) -> Iterator[Finding]:
    # a mapping that is being switched off or deleted soon starts nothing
    if mapping["State"] not in ("Enabled", "Enabling", "Updating"):
        yield report.fail(
            f"it is {mapping['State']}",
            f"aws lambda update-event-source-mapping --uuid {mapping['UUID']} --enabled",
        )

    last = mapping.get("LastProcessingResult") or ""
    if last not in _FINE:
        yield report.fail(
            f"its last result: {last}", f"Read the log of {role}; correct the role or the code."
        )
    # without it one bad record or message repeats all that came with it
    if "ReportBatchItemFailures" not in mapping.get("FunctionResponseTypes", []):
        yield report.fail("it does not report failures one by one", _DEPLOY)

    if role in STREAMS:
        yield from _stream_mapping(report, deployment, role, mapping)


def _stream_mapping(
    report: Reporter, deployment: Deployment, role: str, mapping: Mapping[str, Any]
) -> Iterator[Finding]:
    table = deployment.table_names.get(STREAMS[role])
    if table is not None and f":table/{table}/" not in mapping["EventSourceArn"]:
        yield report.fail(f"it does not read table {table}", _DEPLOY)

    stream = deployment.table(table).get("LatestStreamArn") if table is not None else None
    # a stream that was switched on anew has another ARN, and the mapping stays at the old one
    if stream is not None and mapping["EventSourceArn"] != stream:
        yield report.fail("it reads a stream that the table has no more", _DEPLOY)
    if not mapping.get("FilterCriteria", {}).get("Filters"):
        yield report.fail("it has no filter: each row's change starts the function", _DEPLOY)

    # -1 is Lambda's default: until the record expires
    endless = mapping.get("MaximumRetryAttempts", -1) < 0
    if endless and role not in ENDLESS:
        yield report.fail("it tries for a day: one bad record stops its shard", _DEPLOY)
    if role == "mark_delivered" and not endless:
        yield report.fail("it gives records up that are not counted then", _DEPLOY)

    failure = mapping.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination", "")
    if ":s3:" not in failure and role != "feeds_ring":  # clients ask for what it gives up
        yield report.fail("what it gives up is lost: no bucket keeps it", _DEPLOY)

    if role == "mark_delivered" and mapping.get("ParallelizationFactor", 1) != 1:
        yield report.fail("its parallelisation is over 1: counts need one at a time", _DEPLOY)


@check("schedules", "Clocks run")
def schedules(deployment: Deployment) -> Iterator[Finding]:
    """The rules that start sweep, repair, cleanup and count are there and enabled."""
    rules: dict[str, dict[str, Any]] = {}

    def read(_: Reporter, resource: Resource) -> Iterator[Finding]:
        # on a bus of its own, a rule's physical id is `bus|rule`
        name = resource.name.rpartition("|")[2]
        try:
            rule = deployment.aws.ask("events", "describe_rule", Name=name)
        except Missing:
            # no rule starts its target then: told below
            return
        for target in deployment.aws.ask("events", "list_targets_by_rule", Rule=name)["Targets"]:
            rules[deployment.role_of(target["Arn"])] = rule
        # a generator without findings, as `each` iterates over it
        yield from ()

    denied = list(each("schedules", deployment.resources(RULE), read, lambda rule: rule.logical))
    yield from denied

    # a rule that could not be asked about may start any of them
    for role in () if denied else CLOCKS:
        report = Reporter("schedules", role)
        rule = rules.get(role)
        if rule is None:
            yield report.fail("no rule starts it", _DEPLOY)
        elif rule["State"] != "ENABLED":
            yield report.fail(
                f"its rule is {rule['State']}", f"aws events enable-rule --name {rule['Name']}"
            )
        else:
            yield report.ok(rule.get("ScheduleExpression", ""))
