"""The Iceberg tables of a warehouse: made, versioned, and written so that runs may race."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fairbox_pipeline.errors import ConflictError, PipelineError, VersionError
from fairbox_pipeline.schemas import TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 1
VERSION_PROPERTY: Final = "fairbox.version"
ATTEMPTS: Final = 5
_PROPERTIES: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.distribution-mode": "hash",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    VERSION_PROPERTY: str(VERSION),
}
_RACES: Final = (
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
    "org.apache.iceberg.exceptions.AlreadyExistsException",
    "TableAlreadyExistsException",
    "NamespaceAlreadyExistsException",
)


class Warehouse:
    """Tables of namespace `fairbox`, through one session.

    Every write of a table is one Iceberg commit: it is there whole, or not at all.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def prepare(self) -> None:
        """Make what is missing, and refuse what another version wrote.

        Raises:
            VersionError: the warehouse is of another version; nothing has changed.
        """
        retried(lambda: self.spark.sql("CREATE NAMESPACE IF NOT EXISTS fairbox"), "the namespace")
        found = [table for table in TABLES if self._catalog.tableExists(self._name(table))]
        for table in found:
            self._check(table)
        for table in TABLES:
            if table not in found or self.snapshot(table) is None:
                self._create(table)

    @property
    def _catalog(self) -> Any:
        """Iceberg's own catalog: its metadata are at hand without a Spark job."""
        name = self.spark.conf.get("spark.sql.defaultCatalog")
        manager = self.spark._jsparkSession.sessionState().catalogManager()  # noqa: SLF001 - no other way
        return manager.catalog(name).icebergCatalog()

    def _name(self, table: Table) -> Any:
        jvm: Any = self.spark._jvm  # noqa: SLF001 - as above
        return jvm.org.apache.iceberg.catalog.TableIdentifier.parse(table.full_name)

    def _metadata(self, table: Table) -> Any:
        return self._catalog.loadTable(self._name(table))

    def _check(self, table: Table) -> None:
        written = self.property_of(table, VERSION_PROPERTY)
        if written == str(VERSION):
            return
        told = f"is of version {written}" if written else "has no version"
        newer = written is not None and written.isdigit() and int(written) > VERSION
        todo = (
            "run a newer fairbox-pipeline"
            if newer
            else "rebuild it: run history over the whole archive with another --warehouse"
        )
        raise VersionError(
            f"table {table.full_name} of the warehouse {told}, this pipeline writes version "
            f"{VERSION}: {todo}"
        )

    def _create(self, table: Table) -> None:
        columns = ", ".join(
            f"`{c.name}` {c.type.simpleString()} COMMENT '{_quoted(c.meaning)}'"
            for c in table.columns
        )
        parts = f" PARTITIONED BY ({', '.join(table.partition)})" if table.partition else ""
        properties = ", ".join(
            f"'{k}'='{v}'" for k, v in {**_PROPERTIES, **table.properties}.items()
        )
        statement = (
            f"CREATE TABLE IF NOT EXISTS {table.full_name} ({columns}) USING iceberg{parts} "
            f"COMMENT '{_quoted(table.meaning)}' TBLPROPERTIES ({properties})"
        )
        retried(lambda: self.spark.sql(statement), table.full_name)
        if self.snapshot(table) is not None:
            return
        if table.order:
            order = ", ".join(table.order)
            spread = "DISTRIBUTED BY PARTITION " if table.partition else ""
            self.spark.sql(
                f"ALTER TABLE {table.full_name} WRITE {spread}LOCALLY ORDERED BY {order}"
            )
        # an empty first snapshot, so that every later commit has one to be validated from
        retried(lambda: self._metadata(table).newFastAppend().commit(), table.full_name)

    def read(self, table: Table) -> DataFrame:
        """Return a table as it stands."""
        return self.spark.read.table(table.full_name)

    def snapshot(self, table: Table) -> int | None:
        """Return the id of a table's current snapshot; None before its first."""
        current = self._metadata(table).currentSnapshot()
        return int(current.snapshotId()) if current else None

    def count(self, table: Table) -> int:
        """Return how many rows a table has, from its metadata."""
        current = self._metadata(table).currentSnapshot()
        return int(current.summary().get("total-records")) if current else 0

    def property_of(self, table: Table, name: str) -> str | None:
        """Return a property of a table; None where it has none."""
        found = self._metadata(table).properties().get(name)
        return None if found is None else str(found)

    def set_property(self, table: Table, name: str, value: str) -> None:
        """Set a property of a table."""

        def commit() -> None:
            self._metadata(table).updateProperties().set(name, value).commit()

        retried(commit, table.full_name)

    def read_at(self, table: Table, snapshot: int) -> DataFrame:
        """Return a table as it stood at a snapshot."""
        reader = self.spark.read.format("iceberg").option("snapshot-id", str(snapshot))
        return reader.load(table.full_name)

    def appended(self, table: Table, after: int, until: int) -> DataFrame | None:
        """Return the rows appended after a snapshot; None where its history is gone."""
        history = self._metadata(table).history()
        if after not in {int(entry.snapshotId()) for entry in history}:
            return None
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", str(after))
        return reader.option("end-snapshot-id", str(until)).load(table.full_name)

    def append_after(self, table: Table, rows: DataFrame, snapshot: int) -> None:
        """Append rows in one commit, only if nothing was added since a snapshot.

        Raises:
            Py4JJavaError: a race was lost (see `retried`), or the job failed; nothing is written.
        """
        writer = rows.writeTo(table.full_name).option("isolation-level", "serializable")
        writer.option("validate-from-snapshot-id", str(snapshot)).overwrite(F.lit(False))

    def append(self, table: Table, rows: DataFrame) -> None:
        """Append rows in one commit."""
        retried(lambda: rows.writeTo(table.full_name).append(), table.full_name)

    def replace(self, table: Table, rows: DataFrame) -> None:
        """Put rows in the place of all that a table holds, in one commit."""
        retried(lambda: rows.writeTo(table.full_name).overwrite(F.lit(True)), table.full_name)

    def merge(self, table: Table, rows: DataFrame, clauses: str) -> None:
        """Run `MERGE INTO table t USING rows s` with the given condition and actions.

        Into an empty table the rows are appended, which saves the join. `rows` may have columns
        more than the table, for the clauses to look at.

        Raises:
            ConflictError: other runs won every race.
        """
        view = f"merged_into_{table.name}"
        rows.createOrReplaceTempView(view)

        def write() -> None:
            standing = self.snapshot(table)
            if standing is not None and self.count(table) == 0:
                self.append_after(table, rows.select(*table.names), standing)
            else:
                self.spark.sql(f"MERGE INTO {table.full_name} t USING {view} s {clauses}")

        retried(write, table.full_name)


def retried(write: Callable[[], object], what: str) -> None:
    """Write, again where another run's commit came between.

    Raises:
        ConflictError: it did so every time.
    """
    for _ in range(ATTEMPTS):
        try:
            write()
        except (Py4JJavaError, PySparkException) as exc:
            if not lost_race(exc):
                raise
        else:
            return
    raise ConflictError(
        f"another run changed {what} {ATTEMPTS} times while this one wrote it: run one at a time"
    )


def lost_race(exc: BaseException) -> bool:
    """Whether a write failed because another run's commit came first."""
    return any(name in str(exc) for name in _RACES)


def failure(exc: BaseException) -> PipelineError:
    """Return what Spark raised as one line of this program's own."""
    text = str(exc)
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    told = causes[-1].removeprefix("Caused by: ") if causes else text.partition("\n")[0]
    return PipelineError(f"Spark failed: {told}")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
