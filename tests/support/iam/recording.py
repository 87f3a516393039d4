"""Records what functions ask of AWS during a test run: each request once a process, in a file.

The folder of a run has one for each test process. Its file `test` names the test that runs;
function processes, which are started by one test and serve others, read it there.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from local.cloudformation.identities import REGION
from tests.support.iam.requests import Request, requests_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER_VARIABLE: Final = "FAIRBOX_TEST_REQUESTS"
"""The folder of the records; without it, nothing is written."""
_TEST: Final = "test"


@dataclass
class Log:
    """The requests of one process, by who asked; written to `folder` when they are first seen."""

    folder: Path | None = None
    asked: dict[str, set[Request]] = field(default_factory=dict)

    def note(
        self, who: str, service: str, operation: str, given: Mapping[str, Any], region: str = REGION
    ) -> None:
        """Note one call of a function."""
        for request in requests_of(service, operation, given, region):
            self.add(who, request)

    def add(self, who: str, request: Request) -> None:
        """Note one request."""
        known = self.asked.setdefault(who, set())
        if request in known:
            return
        known.add(request)
        if self.folder is not None:
            line = {"who": who, "test": _test(self.folder), **vars(request)}
            # one write of a short line to a file of its own: a killed process leaves whole lines;
            # an application that outlives the run has no folder any more
            own = self.folder / f"{os.getpid()}.jsonl"
            with suppress(FileNotFoundError), own.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def run_log() -> Log:
    """Return the log of this process for the whole run."""
    folder = os.environ.get(FOLDER_VARIABLE)
    path = Path(folder) if folder else None
    if path != _LOG.folder:
        _LOG.folder, _LOG.asked = path, {}
    return _LOG


_LOG: Final = Log()


def name_test(folder: Path, test: str) -> None:
    """Tell the function processes which test runs."""
    (folder / _TEST).write_text(test, encoding="utf-8")


def _test(folder: Path) -> str:
    own = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    with suppress(OSError):
        return own or (folder / _TEST).read_text(encoding="utf-8")
    return "no test"


@dataclass(frozen=True)
class Seen:
    """A request, who asked, and the test in which it was first seen."""

    who: str
    request: Request
    test: str


def read(folder: Path) -> list[Seen]:
    """Return what all processes of a run recorded, each request of each function once."""
    found: dict[tuple[str, Request], Seen] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            context = tuple((name, tuple(values)) for name, values in line["context"])
            request = Request(line["action"], line["resource"], context)
            found.setdefault((line["who"], request), Seen(line["who"], request, line["test"]))
    return list(found.values())


class Caller:
    """Names who calls; nobody's calls are not recorded.

    Args:
        renames: names that stand in tests for those of the template, as parts of ARNs.
    """

    def __init__(self, log: Log | None = None, renames: Mapping[str, str] | None = None) -> None:
        self.log = log or run_log()
        self.who = ""
        self._renames = renames or {}

    @contextmanager
    def as_one(self, who: str) -> Iterator[None]:
        """Record the calls within as those of a function or a user."""
        self.who, before = who, self.who
        try:
            yield
        finally:
            self.who = before

    def note(self, service: str, operation: str, given: Mapping[str, Any]) -> None:
        """Record one call, unless it is nobody's."""
        if not self.who:
            return
        for request in requests_of(service, operation, given):
            resource = request.resource
            for name, own in self._renames.items():
                resource = re.sub(rf"(?<=[:/]){re.escape(name)}(?=/|$)", own, resource)
            self.log.add(self.who, Request(request.action, resource, request.context))


class Recorded:
    """Stands before a client, or what acts as one, and records its calls."""

    def __init__(self, client: Any, service: str, caller: Caller) -> None:
        self._client = client
        self._service = service
        self._caller = caller

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name == "get_paginator":
            return lambda operation: _RecordedPages(self, found(operation), operation)
        if name.startswith("_") or not callable(found):
            return found

        def call(**given: Any) -> Any:
            self._note(name, given)
            return found(**given)

        return call

    def _note(self, method: str, given: Mapping[str, Any]) -> None:
        self._caller.note(self._service, operation_of(method), given)


class _RecordedPages:
    """Stands before a paginator."""

    def __init__(self, recorded: Recorded, pages: Any, operation: str) -> None:
        self._recorded = recorded
        self._pages = pages
        self._operation = operation

    def paginate(self, **given: Any) -> Any:
        self._recorded._note(self._operation, given)
        return self._pages.paginate(**given)


def operation_of(method: str) -> str:
    """Return the API's name of a method of boto3: `list_objects_v2` is `ListObjectsV2`."""
    return "".join(part.title() for part in method.split("_"))
