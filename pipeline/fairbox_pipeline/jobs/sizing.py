"""Job `sizing`: load and bytes by shard, skew, hot keys, and the shards that each topic needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.job import Context, Figures, Job, run
from fairbox_pipeline.transforms.sizing import (
    hot_keys,
    load_of_shards,
    load_of_topics,
    shards_needed,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

MOST_KEYS: Final = 100


def figures(context: Context) -> Figures:
    """Return the load of each shard and topic, and the fullest keys."""
    messages = context.messages()
    shards = load_of_shards(messages)
    topics = load_of_topics(shards, shards_needed(messages))
    return {
        "shards": _rows(shards),
        "topics": _rows(topics),
        "hot_keys": _rows(hot_keys(messages, context.options.hot_keys)),
    }


def _rows(frame: DataFrame) -> list[dict[str, object]]:
    return [row.asDict() for row in frame.collect()]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hot-keys",
        type=int,
        default=MOST_KEYS,
        metavar="N",
        help=f"how many keys of each topic to list (default {MOST_KEYS})",
    )


JOB: Final = Job("sizing", "Tell load, skew, hot keys and shards needed.", figures, _arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return the exit code."""
    return run(JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
