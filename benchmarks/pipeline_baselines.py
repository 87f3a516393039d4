"""The same deduplication with DuckDB, and with Spark and an inferred schema; one run per process.

`python -m benchmarks.pipeline_baselines duckdb|inferred ARCHIVE FOLDER` prints the seconds it took:
lines to events, each once, to messages, both written as Parquet.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Final

CORES: Final = 2
_COLUMNS: Final = {
    "event": "VARCHAR",
    "at": "BIGINT",
    "topic": "VARCHAR",
    "epoch": "BIGINT",
    "shard": "BIGINT",
    "id": "VARCHAR",
    "event_id": "VARCHAR",
    "partition_key": "VARCHAR",
    "content_type": "VARCHAR",
    "headers": "MAP(VARCHAR, VARCHAR)",
    "body": "VARCHAR",
    "body_encoding": "VARCHAR",
    "size": "BIGINT",
    "batch_item": "VARCHAR",
    "ordering": "VARCHAR",
    "subscription": "VARCHAR",
    "destination": "VARCHAR",
    "attempt": "BIGINT",
    "reason": "VARCHAR",
}
_MESSAGES: Final = """
    SELECT topic, epoch, shard, id, max(partition_key) AS partition_key, max(size) AS size,
           min(CASE WHEN event = 'added' THEN e.at END) AS added_at,
           min(CASE WHEN event = 'delivered' THEN e.at END) AS delivered_at,
           max(attempt) AS attempts, count(*) AS events
    FROM {events} AS e GROUP BY topic, epoch, shard, id
"""


def duckdb_seconds(archive: Path, folder: Path) -> float:
    """Return the seconds that DuckDB takes, with the explicit schema."""
    import duckdb  # noqa: PLC0415 - one process runs one baseline

    session = duckdb.connect(config={"threads": CORES})
    session.execute(f"SET temp_directory = '{folder}/temporary'")
    began = time.monotonic()
    lines = f"'{archive}/**/*.json.gz', format = 'newline_delimited', columns = {_COLUMNS}"
    once = "QUALIFY row_number() OVER (PARTITION BY event_id) = 1"
    session.execute(
        f"COPY (FROM read_json({lines}) {once}) TO '{folder}/events.parquet' (COMPRESSION zstd)"
    )
    messages = _MESSAGES.format(events=f"'{folder}/events.parquet'")
    session.execute(f"COPY ({messages}) TO '{folder}/messages.parquet' (COMPRESSION zstd)")
    return time.monotonic() - began


def inferred_seconds(archive: Path, folder: Path) -> float:
    """Return the seconds that Spark takes with an inferred schema."""
    from fairbox_pipeline import session  # noqa: PLC0415 - one process runs one baseline

    spark = session.start()
    began = time.monotonic()
    lines = spark.read.option("recursiveFileLookup", "true").json(str(archive))
    events = str(folder / "events")
    lines.dropDuplicates(["event_id"]).write.option("compression", "zstd").parquet(events)
    spark.read.parquet(events).createOrReplaceTempView("events")
    messages = spark.sql(_MESSAGES.format(events="events"))
    messages.write.option("compression", "zstd").parquet(str(folder / "messages"))
    seconds = time.monotonic() - began
    spark.stop()
    return seconds


BASELINES: Final = {"duckdb": duckdb_seconds, "inferred": inferred_seconds}


def main() -> None:
    """Run one baseline and print its seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(BASELINES))
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    shutil.rmtree(chosen.folder, ignore_errors=True)
    chosen.folder.mkdir(parents=True)
    print(BASELINES[chosen.name](chosen.archive, chosen.folder))


if __name__ == "__main__":
    main()
