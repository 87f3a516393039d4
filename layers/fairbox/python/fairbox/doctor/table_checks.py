"""Checks of the tables: keys, indexes, streams, expiry, backups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.doctor.aws import Missing
from fairbox.doctor.findings import Finding, Reporter, check, each
from fairbox.tables import batch_records as batch_names
from fairbox.tables.definitions import batches_definition, feeds_definition, table_definitions
from fairbox.tables.keys import EXPIRES_AT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairbox.doctor.examined_deployment import Deployment

EXPIRY: Final[Mapping[str, str | None]] = {
    "outbox": None,
    "deliveries": EXPIRES_AT,
    "batches": batch_names.EXPIRES_AT,
    "feeds": EXPIRES_AT,
}
_DEPLOY: Final = "Deploy the stacks again: make deploy."
Table = tuple[str, str]


def definitions(names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what `create_table` would be asked, by what the tables are."""
    outbox, deliveries = table_definitions(outbox="", deliveries="")
    batches, feeds = batches_definition(""), feeds_definition("")
    made = {"outbox": outbox, "deliveries": deliveries, "batches": batches, "feeds": feeds}
    return {role: made[role] for role in names}


def _each(name: str, deployment: Deployment, examine: Any) -> Iterator[Finding]:
    tables = list(deployment.table_names.items())
    return each(name, tables, examine, lambda table: f"{table[0]} {table[1]}")


@check("tables", "Tables exist, with their keys")
def tables(deployment: Deployment) -> Iterator[Finding]:
    """Each table is ACTIVE, has its keys, is paid by request and protected against deletion."""
    wanted = definitions(deployment.table_names)

    def examine(report: Reporter, table: Table) -> Iterator[Finding]:
        role, name = table
        try:
            there = deployment.table(name)
        except Missing:
            yield report.fail(
                "there is no such table",
                f"Point the environment at the deployed tables, or deploy: {_DEPLOY}",
            )
            return

        yield from report.bad_or_ok(_table(report, there, wanted[role]))
        if there.get("DeletionProtectionEnabled") is False and not deployment.local:
            yield report.warn(
                "nothing keeps it from being deleted",
                "Deploy with removal_policy=retain, but for a deployment that may go.",
            )

    yield from _each("tables", deployment, examine)


def _table(
    report: Reporter, there: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Iterator[Finding]:
    if there["TableStatus"] not in ("ACTIVE", "UPDATING"):
        yield report.fail(f"it is {there['TableStatus']}", "Wait until it is ACTIVE; if it stays, "
                          "ask AWS support.")  # fmt: skip
    # more attributes may be defined: another index, for the user's own queries
    if there["KeySchema"] != wanted["KeySchema"] or not _types(wanted) <= _types(there):
        yield report.fail(
            "its keys or their types are not Fairbox's",
            "It is another table: correct the environment. Keys of a table cannot be changed.",
        )

    # DynamoDB leaves it out of tables that were always provisioned
    mode = there.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    if mode != "PAY_PER_REQUEST":
        yield report.warn(f"it is billed as {mode}", "Costs and throttling are those of the "
                          "capacity set there; Fairbox is made for PAY_PER_REQUEST.")  # fmt: skip


def _types(table: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(a["AttributeName"], a["AttributeType"]) for a in table["AttributeDefinitions"]}


@check("indexes", "Indexes are there and whole")
def indexes(deployment: Deployment) -> Iterator[Finding]:
    """Each index is ACTIVE, with its keys and what is projected into it."""
    wanted = definitions(deployment.table_names)

    def examine(report: Reporter, table: Table) -> Iterator[Finding]:
        role, name = table
        there = {
            i["IndexName"]: i for i in deployment.table(name).get("GlobalSecondaryIndexes", [])
        }
        for index in wanted[role].get("GlobalSecondaryIndexes", ()):
            found = there.get(index["IndexName"])
            yield from report.bad_or_ok(_index(report, index, found), index["IndexName"])

    yield from _each("indexes", deployment, examine)


def _index(
    report: Reporter, wanted: Mapping[str, Any], there: Mapping[str, Any] | None
) -> Iterator[Finding]:
    name = wanted["IndexName"]
    if there is None:
        yield report.fail(f"index {name} is missing", _DEPLOY)
        return

    if there.get("IndexStatus", "ACTIVE") != "ACTIVE":
        yield report.fail(f"index {name} is {there['IndexStatus']}", "Wait until it is built.")
    if there["KeySchema"] != wanted["KeySchema"] or _shown(there) != _shown(wanted):
        yield report.fail(
            f"index {name} has other keys or another projection",
            f"Remove it and let it be built anew. {_DEPLOY}",
        )


def _shown(index: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    projection = index["Projection"]
    return projection["ProjectionType"], frozenset(projection.get("NonKeyAttributes", ()))


@check("streams", "Streams are on")
def streams(deployment: Deployment) -> Iterator[Finding]:
    """The outbox streams old and new images, batches and feeds new ones."""
    wanted = definitions(deployment.table_names)

    def examine(report: Reporter, table: Table) -> Iterator[Finding]:
        role, name = table
        view = wanted[role].get("StreamSpecification", {}).get("StreamViewType")
        there = deployment.table(name).get("StreamSpecification", {})
        shown = there.get("StreamViewType") if there.get("StreamEnabled") else None

        if view is None or shown == view:
            yield report.ok(view or "needs none")
        else:
            yield report.fail(
                f"the stream is {shown or 'off'}, not {view}",
                "Nothing is relayed or marked. Deploy the stacks again, all of them: a stream that "
                "was switched on anew has another ARN. Then: fairbox outbox sweep.",
            )

    yield from _each("streams", deployment, examine)


@check("expiry", "Rows expire that should, and no message does")
def expiry(deployment: Deployment) -> Iterator[Finding]:
    """Deliveries, batches and feeds have their TTL attribute; the outbox has none."""

    def examine(report: Reporter, table: Table) -> Iterator[Finding]:
        role, name = table
        answer = deployment.aws.ask("dynamodb", "describe_time_to_live", TableName=name)
        ttl = answer["TimeToLiveDescription"]
        # while it is being switched off, the answer still names the attribute
        on = ttl.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        attribute = ttl.get("AttributeName") if on else None
        wanted = EXPIRY[role]

        if attribute == wanted:
            yield report.ok(f"by attribute {wanted}" if wanted else "nothing expires")
        elif wanted is None:
            yield report.fail(
                f"items expire by attribute {attribute}",
                "Messages could be lost: switch TTL off for the outbox.",
            )
        else:
            yield report.fail(
                f"TTL is by {attribute or 'nothing'}, not by {wanted}",
                f"The table grows for good. {_DEPLOY}",
            )

    yield from _each("expiry", deployment, examine)


@check("backups", "Tables can be recovered")
def backups(deployment: Deployment) -> Iterator[Finding]:
    """Point-in-time recovery is on."""

    def examine(report: Reporter, table: Table) -> Iterator[Finding]:
        _, name = table
        answer = deployment.aws.ask("dynamodb", "describe_continuous_backups", TableName=name)
        ttl = answer["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
        if ttl["PointInTimeRecoveryStatus"] == "ENABLED":
            yield report.ok("to any second of the last 35 days")
        else:
            yield report.warn("point-in-time recovery is off", f"Switch it on. {_DEPLOY}")

    yield from _each("backups", deployment, examine)
