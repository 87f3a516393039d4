"""The simulation of IAM over a whole test run, as a plugin of pytest.

Every process of the run records what functions ask of AWS. At the end, requests without a grant
fail the run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.cloudformation.synthesis import synthesise
from local.functions.runtime import WRAPPER_VARIABLE
from local.workspace import Workspace
from tests.support.deployment import SETTINGS
from tests.support.iam.deployment import Deployment
from tests.support.iam.recording import FOLDER_VARIABLE, name_test, read
from tests.support.iam.review import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.iam.recording import Seen


class IamSimulation:
    """Records and reviews; one in the main process and one in each worker."""

    def __init__(self, config: pytest.Config) -> None:
        worker: dict[str, str] | None = getattr(config, "workerinput", None)
        self._main = worker is None
        self._run = Path(tempfile.mkdtemp(prefix="fairbox-requests-") if worker is None
                         else os.environ[FOLDER_VARIABLE])  # fmt: skip
        self._own = self._run if worker is None else self._run / worker["workerid"]
        self._own.mkdir(exist_ok=True)
        self._findings: list[str] = []
        # workers inherit the first and set their own
        os.environ[FOLDER_VARIABLE] = str(self._own)
        wrapper = (
            sys.executable,
            str(Path(__file__).with_name("function_process.py")),
            str(self._own),
        )
        os.environ[WRAPPER_VARIABLE] = shlex.join(wrapper)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Name the test to processes of functions."""
        name_test(self._own, item.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Review the run once its workers have ended."""
        if not self._main:
            return
        seen = read(self._run)
        shutil.rmtree(self._run, ignore_errors=True)
        if not seen:
            return
        self._findings = list(review(seen))
        if self._findings and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the findings."""
        if self._findings:
            terminalreporter.section("IAM", red=True)
            for finding in self._findings:
                terminalreporter.write_line(finding)


def review(seen: list[Seen]) -> Iterator[str]:
    """Yield the findings of a run: requests to resources of the local application."""
    local = Deployment(synthesise(Workspace(), context=SETTINGS, name="cdk.functions"))
    own = [one for one in seen if local.owns(one.request.resource)]
    yield from missing(local, own)
