"""The Iceberg tables of a warehouse: created, versioned, and written so that runs may race."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fairbox_pipeline.errors import ConflictError, PipelineError, VersionError
from fairbox_pipeline.schemas import NAMESPACE, TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 1
NAMESPACE_SETTING: Final = "spark.fairbox.namespace"
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
    """Tables of namespace `fairbox`, or of Spark's `spark.fairbox.namespace`, through one session.

    Every write of a table is one Iceberg commit, so it is atomic.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def prepare(self) -> None:
        """Create missing tables; refuse those of another version.

        Raises:
            VersionError: the warehouse is of another version; nothing has changed.
        """
        found = {table.name: self._found(table) for table in TABLES}
        for table in TABLES:
            if (metadata := found[table.name]) is not None:
                _check(table, metadata)
        if not any(found.values()):
            retried(self._make_namespace, "the namespace")
        for table in TABLES:
            metadata = found[table.name]
            if metadata is None or metadata.currentSnapshot() is None:
                self._create(table)

    @cached_property
    def _catalog(self) -> Any:
        """Iceberg's own catalog, which returns metadata without a Spark job."""
        name = self.spark.conf.get("spark.sql.defaultCatalog")
        session = self.spark._jsparkSession  # noqa: SLF001 - Python has no other door to catalogs
        # catalogs are set up from the session that is active in this thread
        self._java("org.apache.spark.sql.classic.SparkSession").setActiveSession(session)
        return session.sessionState().catalogManager().catalog(name).icebergCatalog()

    def _java(self, name: str) -> Any:
        """Return a class by its whole name: `jvm.org...` would look for each part of it."""
        gateway: Any = self.spark.sparkContext._gateway  # noqa: SLF001 - as above
        return JavaClass(name, gateway._gateway_client)  # noqa: SLF001 - as above

    def _full_name(self, table: Table) -> str:
        """Return its name as SQL takes it."""
        return f"{self._namespace}.{table.name}"

    @cached_property
    def _namespace(self) -> str:
        """The namespace: `spark-submit` gives the deployment's, which is a database of Glue."""
        return str(self.spark.conf.get(NAMESPACE_SETTING, NAMESPACE))

    def _name(self, table: Table) -> Any:
        identifiers = self._java("org.apache.iceberg.catalog.TableIdentifier")
        return identifiers.parse(self._full_name(table))

    def _metadata(self, table: Table) -> Any:
        return self._catalog.loadTable(self._name(table))

    def _found(self, table: Table) -> Any:
        """Return a table's metadata; None where there is no such table."""
        catalog, name = self._catalog, self._name(table)
        return catalog.loadTable(name) if catalog.tableExists(name) else None

    def _make_namespace(self) -> None:
        catalog, namespace = self._catalog, self._name(TABLES[0]).namespace()
        if not catalog.namespaceExists(namespace):
            catalog.createNamespace(namespace)

    def _create(self, table: Table) -> None:
        """Make a table with an empty first snapshot, from which every later commit is validated.

        One commit: a table that is there is whole.
        """

        def commit() -> None:
            found = self._found(table)
            if found is None:
                making = self._builder(table).createTransaction()
                making.newFastAppend().commit()
                making.commitTransaction()
            elif found.currentSnapshot() is None:
                found.newFastAppend().commit()

        retried(commit, self._full_name(table))

    def _builder(self, table: Table) -> Any:
        """Return what Iceberg makes the table with: columns, partitions, order, properties."""
        as_json = table.commented_schema.json()
        struct = self._java("org.apache.spark.sql.types.DataType").fromJson(as_json)
        schema = self._java("org.apache.iceberg.spark.SparkSchemaUtil").convert(struct)
        partition = self._java("org.apache.iceberg.PartitionSpec").builderFor(schema)
        for part in table.partition:
            if part.width is None:
                partition.identity(part.column)
            else:
                partition.truncate(part.column, part.width)
        order = self._java("org.apache.iceberg.SortOrder").builderFor(schema)
        for column in table.order:
            order.asc(column)
        properties = self._java("java.util.HashMap")()
        for name, value in {**_PROPERTIES, **table.properties, "comment": table.meaning}.items():
            properties.put(name, value)
        if not table.partition:
            properties.put("write.distribution-mode", "none")
        builder = self._catalog.buildTable(self._name(table), schema)
        builder.withPartitionSpec(partition.build()).withSortOrder(order.build())
        return builder.withProperties(properties)

    def read(self, table: Table) -> DataFrame:
        """Return the current table."""
        return self.spark.read.table(self._full_name(table))

    def snapshot(self, table: Table) -> int | None:
        """Return the id of a table's current snapshot; None before its first."""
        current = self._metadata(table).currentSnapshot()
        return int(current.snapshotId()) if current else None

    def count(self, table: Table) -> int:
        """Return the number of rows of a table, from its metadata."""
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

        retried(commit, self._full_name(table))

    def read_at(self, table: Table, snapshot: int) -> DataFrame:
        """Return a table as it stood at a snapshot."""
        reader = self.spark.read.format("iceberg").option("snapshot-id", str(snapshot))
        return reader.load(self._full_name(table))

    def appended(self, table: Table, after: int, until: int) -> DataFrame | None:
        """Return the rows appended after a snapshot; None where its history is gone."""
        history = self._metadata(table).history()
        if after not in {int(entry.snapshotId()) for entry in history}:
            return None
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", str(after))
        return reader.option("end-snapshot-id", str(until)).load(self._full_name(table))

    def append_after(self, table: Table, rows: DataFrame, snapshot: int) -> None:
        """Append rows in one commit, only if nothing was added since a snapshot.

        Raises:
            Py4JJavaError: a race was lost (see `retried`), or the job failed; nothing is written.
        """
        writer = rows.writeTo(self._full_name(table)).option("isolation-level", "serializable")
        writer.option("validate-from-snapshot-id", str(snapshot)).overwrite(F.lit(False))

    def append(self, table: Table, rows: DataFrame) -> None:
        """Append rows in one commit."""
        name = self._full_name(table)
        retried(lambda: rows.writeTo(name).append(), name)

    def replace(self, table: Table, rows: DataFrame) -> None:
        """Replace all rows of a table in one commit."""
        name = self._full_name(table)
        retried(lambda: rows.writeTo(name).overwrite(F.lit(True)), name)

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
                self.spark.sql(f"MERGE INTO {self._full_name(table)} t USING {view} s {clauses}")

        retried(write, self._full_name(table))


def _check(table: Table, metadata: Any) -> None:
    written = metadata.properties().get(VERSION_PROPERTY)
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


def retried(write: Callable[[], object], what: str) -> None:
    """Write; retry after a conflicting commit of another run.

    Raises:
        ConflictError: every attempt conflicted.
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
    """Return an error of Spark as one line of this program's own."""
    text = str(exc)
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    told = causes[-1].removeprefix("Caused by: ") if causes else text.partition("\n")[0]
    return PipelineError(f"Spark failed: {told}")
