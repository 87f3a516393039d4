"""Job `report`: one self-contained HTML page with the plots."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.files import write_file
from fairbox_pipeline.job import Context, Figures, Job, run
from fairbox_pipeline.report.page import render
from fairbox_pipeline.report.parts import Report, Tables
from fairbox_pipeline.schemas import BATCHES_TABLE, FINDINGS_TABLE
from fairbox_pipeline.session import location
from fairbox_pipeline.transforms.deliveries import first_deliveries

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

NAME: Final = "report.html"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's own arguments."""
    parser.add_argument(
        "--page", type=location, metavar="URI", help=f"where it goes ({NAME} in the warehouse)"
    )


def figures(context: Context) -> Figures:
    """Write the page; return its path."""
    read = context.warehouse.read
    report = Report(
        Tables(
            messages=context.messages(),
            deliveries=first_deliveries(context.messages()),
            events=context.events(),
            findings=read(FINDINGS_TABLE),
            batches=read(BATCHES_TABLE),
        )
    )
    try:
        page = render(report.about(), report.headline(), report.parts())
    finally:
        report.close()
    given: str | None = getattr(context.options, "page", None)
    place = given or f"{context.options.warehouse}/{NAME}"
    write_file(context.spark, place, page.encode())
    return {"page": place}


JOB: Final = Job("report", "Write one HTML page with the plots.", figures, arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return the exit code."""
    return run(JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
