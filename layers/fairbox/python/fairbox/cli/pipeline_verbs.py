"""The pipeline's jobs, which run in processes of their own: the library does without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from fairbox.cli.session import FAILED, USAGE
from fairbox.errors import Unavailable
from fairbox.settings import DEPLOYED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.cli.session import Session

_MODULE = "fairbox_pipeline"


def run_job(session: Session, job: str, arguments: Sequence[str]) -> None:
    """Run a job over the outbox that the environment names, and print what it prints.

    It says on standard error how far it is, and why it fails; that ends the run, 2 for a wrong
    value and else 1.

    Raises:
        Unavailable: the pipeline is not installed.
    """
    if find_spec(_MODULE) is None:
        raise Unavailable(job, "it is a job of the pipeline: install fairbox-pipeline")

    # imported where it is used: `fairbox --help` does without the SDK
    from fairbox.aws.deployed_settings import settings_with  # noqa: PLC0415

    environment = dict(settings_with(DEPLOYED, None, session.clients.client).values)
    if session.clients.endpoint_url is not None:
        # the SDK of the job reads it by itself
        environment["AWS_ENDPOINT_URL_DYNAMODB"] = session.clients.endpoint_url

    asked = [sys.executable, "-m", f"{_MODULE}.cli", job, *arguments, "--json"]
    # standard error is not caught: its progress is to be seen while it runs
    done = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise typer.Exit(USAGE if done.returncode == USAGE else FAILED)
    session.show(json.loads(done.stdout))
