"""The Iceberg tables of a warehouse: created, versioned, and written by one run at a time."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.java_gateway import JavaClass
from pyspark.sql import functions as F

from fairbox_pipeline.errors import ConflictError, PipelineError, UsageError, VersionError
from fairbox_pipeline.lines import UnreadableFileError
from fairbox_pipeline.schemas import NAMESPACE, TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, Row, SparkSession

VERSION: Final = 5
NAMESPACE_SETTING: Final = "spark.fairbox.namespace"
VERSION_PROPERTY: Final = "fairbox.version"
FOLDED_PROPERTY: Final = "fairbox.folded"
"""Of table `messages`: number of the commit of `events` up to which all of it stands."""
NEW: Final = "new"
"""Name of the rows that `Warehouse.merge` merges into a table."""
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


class Commit(NamedTuple):
    """A commit that appended rows to a table.

    Attributes:
        number: commits of a table are numbered in their order.
        snapshot: id of the snapshot that it made.
        before: id of the snapshot before it; None: it is the first.
    """

    number: int
    snapshot: int
    before: int | None


class Warehouse:
    """Tables of namespace `fairbox`, or of Spark's `spark.fairbox.namespace`, through one session.

    Every write of a table is one Iceberg commit, so it is atomic. One that meets the commit of
    another run fails, and `failure` says so.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def prepare(self) -> None:
        """Create missing tables.

        Raises:
            VersionError: the warehouse is of another version; nothing has changed.
        """
        found = {table.name: self._found(table) for table in TABLES}
        if not any(found.values()):
            self._make_namespace()
        for table in TABLES:
            if found[table.name] is None:
                self._create(table)

    def require(self, tables: Iterable[Table]) -> None:
        """Refuse a warehouse that lacks tables, or has them of another version; write nothing.

        Raises:
            UsageError: a table is missing.
            VersionError: a table is of another version.
        """
        for table in tables:
            if self._found(table) is None:
                raise UsageError(f"the warehouse has no table {table.full_name}: run history first")

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
        """Return a table's metadata; None where there is no such table.

        Raises:
            VersionError: it is of another version.
        """
        catalog, name = self._catalog, self._name(table)
        found = catalog.loadTable(name) if catalog.tableExists(name) else None
        if found is None:
            return None
        version = found.properties().get(VERSION_PROPERTY) or "none"
        if version != str(VERSION):
            raise VersionError(
                f"table {table.full_name} is of version {version}, this pipeline reads and writes "
                f"version {VERSION}: run the pipeline that made it, or history over the whole "
                "archive with another --warehouse"
            )
        return found

    def _make_namespace(self) -> None:
        catalog, namespace = self._catalog, self._name(TABLES[0]).namespace()
        if not catalog.namespaceExists(namespace):
            catalog.createNamespace(namespace)

    def _create(self, table: Table) -> None:
        """Make a table with an empty first snapshot, from which every later commit is validated.

        One commit: a table that is there is whole.
        """
        making = self._builder(table).createTransaction()
        making.newFastAppend().commit()
        making.commitTransaction()

    def _schema(self, table: Table) -> Any:
        struct = self._java("org.apache.spark.sql.types.DataType").fromJson(table.schema.json())
        return self._java("org.apache.iceberg.spark.SparkSchemaUtil").convert(struct)

    def _builder(self, table: Table) -> Any:
        """Return what Iceberg makes the table with: columns, partitions, order, properties."""
        schema = self._schema(table)
        partition = self._java("org.apache.iceberg.PartitionSpec").builderFor(schema)
        for column, width in table.partition.items():
            if width is None:
                partition.identity(column)
            else:
                partition.truncate(column, width)
        order = self._java("org.apache.iceberg.SortOrder").builderFor(schema)
        for column in table.order:
            order.asc(column)
        properties = self._java("java.util.HashMap")()
        for name, value in {**_PROPERTIES, "comment": table.meaning}.items():
            properties.put(name, value)
        if not table.partition:
            properties.put("write.distribution-mode", "none")
        builder = self._catalog.buildTable(self._name(table), schema)
        builder.withPartitionSpec(partition.build()).withSortOrder(order.build())
        return builder.withProperties(properties)

    def location(self, table: Table) -> str:
        """Return the folder of a table."""
        return str(self._metadata(table).location())

    def read(self, table: Table) -> DataFrame:
        """Return the current table."""
        return self.spark.read.table(self._full_name(table))

    def count(self, table: Table, what: str = "records") -> int:
        """Return the number of rows of a table, or of its `data-files`, from its metadata."""
        current = self._metadata(table).currentSnapshot()
        return int(current.summary().get(f"total-{what}") or 0) if current else 0

    def property_of(self, table: Table, name: str) -> str | None:
        """Return a property of a table; None where it has none."""
        found = self._metadata(table).properties().get(name)
        return None if found is None else str(found)

    def set_property(self, table: Table, name: str, value: str) -> None:
        """Set a property of a table."""
        self._metadata(table).updateProperties().set(name, value).commit()

    def read_at(self, table: Table, snapshot: int) -> DataFrame:
        """Return a table as it stood at a snapshot."""
        reader = self.spark.read.format("iceberg").option("versionAsOf", str(snapshot))
        return reader.load(self._full_name(table))

    def current(self, table: Table) -> Commit:
        """Return the last commit of a table that has one."""
        return _commit(self._metadata(table).currentSnapshot())

    def commits(self, table: Table, after: int | None) -> list[Commit] | None:
        """Return the commits after one, by its number, that appended rows, in order.

        Returns:
            None where the table no longer knows them all, or where `after` is None.
        """
        metadata = self._metadata(table)
        snapshot = metadata.currentSnapshot()
        found: list[Commit] = []
        while after is not None and snapshot is not None:
            commit = _commit(snapshot)
            if commit.number < after and not found:
                return None  # the table was rolled back
            if commit.number <= after:
                return found[::-1]
            if str(snapshot.operation()) == "append":
                found.append(commit)
            snapshot = None if commit.before is None else metadata.snapshot(commit.before)
        return None

    def appended(self, table: Table, commit: Commit) -> DataFrame:
        """Return the rows that a commit appended."""
        reader = self.spark.read.format("iceberg").option("end-snapshot-id", str(commit.snapshot))
        if commit.before is not None:
            reader = reader.option("start-snapshot-id", str(commit.before))
        return reader.load(self._full_name(table))

    def append_after(self, table: Table, rows: DataFrame, snapshot: int) -> None:
        """Append rows in one commit, only if nothing was added since a snapshot."""
        writer = rows.writeTo(self._full_name(table)).option("isolation-level", "serializable")
        writer = writer.option("distribution-mode", "none")  # rows are sorted where they are
        writer.option("validate-from-snapshot-id", str(snapshot)).overwrite(F.lit(False))

    def append(self, table: Table, rows: DataFrame) -> None:
        """Append rows in one commit."""
        rows.writeTo(self._full_name(table)).append()

    def replace(
        self,
        table: Table,
        rows: DataFrame,
        after: int | None = None,
        where: Column | None = None,
    ) -> None:
        """Replace all rows of a table in one commit, or those of whole partitions.

        With `after`, only if nothing has changed since this snapshot.
        """
        writer = rows.writeTo(self._full_name(table))
        if after is not None:
            writer = writer.option("isolation-level", "serializable")
            writer = writer.option("validate-from-snapshot-id", str(after))
        writer.overwrite(F.lit(True) if where is None else where)

    def delete(self, table: Table, where: str) -> None:
        """Delete rows of the table, as `t`, by a condition in SQL, in one commit."""
        query = f"DELETE FROM {self._full_name(table)} t WHERE {where}"  # noqa: S608 - no input
        self.spark.sql(query)

    def call(self, procedure: str, table: Table, arguments: str) -> list[Row]:
        """Run one of Iceberg's procedures on a table; return the rows of its answer."""
        catalog, name = self.spark.conf.get("spark.sql.defaultCatalog"), self._full_name(table)
        query = f"CALL {catalog}.system.{procedure}(table => '{name}', {arguments})"
        return self.spark.sql(query).collect()

    def merge(
        self,
        table: Table,
        rows: DataFrame,
        *,
        on: Column,
        when: Column | None = None,
        update: dict[str, Column] | None = None,
    ) -> None:
        """Merge rows into a table in one commit: insert new ones, and update others, if asked to.

        The conditions and values name columns of the rows as `new.x`, and those of the table by
        its own name. `when` None: all others are updated.
        """
        merging = rows.alias(NEW).mergeInto(self._full_name(table), on)
        if update is not None:
            merging = merging.whenMatched(when).update(update)
        merging.whenNotMatched().insertAll().merge()


def _commit(snapshot: Any) -> Commit:
    before = snapshot.parentId()
    number, itself = int(snapshot.sequenceNumber()), int(snapshot.snapshotId())
    return Commit(number, itself, None if before is None else int(before))


def failure(exc: BaseException) -> PipelineError:
    """Return an error as one of this program's own: of Spark, the line of its innermost cause.

    A file that cannot be read is named, as wrong input.
    """
    if isinstance(exc, PipelineError):
        return exc
    if any(race in str(exc) for race in _RACES):
        return ConflictError(
            "another run changed the tables meanwhile: run one at a time, and this one again"
        )
    told = re.search(rf"{UnreadableFileError.__name__}: (.*)", str(exc))
    if told:
        return UsageError(told[1])
    cause = _cause(str(exc)) or type(exc).__name__
    file = re.search(r"while reading file (\S+?)\.?\s", str(exc))
    if file:
        return UsageError(f"{file[1]} cannot be read: {cause}")
    return PipelineError(f"Spark failed: {cause}")


def _cause(text: str) -> str:
    """Return the line that names the innermost cause: of a Python worker, of Java, or the first."""
    _, of_python, raised = text.rpartition("Traceback (most recent call last):")
    lines = [line for line in raised.splitlines() if line.strip()]
    if of_python:
        return next((line for line in lines if not line[0].isspace()), "")
    causes = [line for line in lines if line.startswith("Caused by: ")]
    # Py4J's first line says only what was called
    java = [line for line in lines if line.startswith(": ")]
    told = [*causes[-1:], *java, *lines, ""][0]
    return told.removeprefix("Caused by: ").removeprefix(": ").strip()
