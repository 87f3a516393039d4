"""The documents: reference pages up to date, snippets that run, links and commands that exist."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from fairbox import Batches, Outbox, Topic
from fairbox.testing import ManualClock
from fairbox.testing.application import MemoryApplication

from scripts import write_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
LIBRARY = ROOT / "layers/fairbox/python"
TUTORIAL = ROOT / "docs/tutorial/first-outbox.md"
LOCAL = "<!-- local application -->\n"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(
    r"^(?P<local>" + re.escape(LOCAL) + r")?```python\n(?P<code>.*?)^```$"
    r"|^<!-- check\n(?P<check>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def snippets_of(page: Path, *, checks: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield each Python snippet, and whether it needs the local application.

    Hidden checks (`<!-- check`) count as snippets: they prove what a reader would have to try.
    Blank lines keep the numbers of the page's lines for tracebacks.
    """
    text = page.read_text(encoding="utf-8")
    for match in _PYTHON.finditer(text):
        group = "check" if match["check"] is not None else "code"
        if group == "check" and not checks:
            continue
        lines = text[: match.start(group)].count("\n")
        yield "\n" * lines + match[group], match["local"] is not None


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> MemoryApplication:
    """The application in memory, which `from_env` and boto3's clients lead to."""
    app = MemoryApplication(clock=ManualClock(time.time()))
    app.client.create_table(
        TableName="Orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    monkeypatch.setattr(Outbox, "from_env", lambda: app.outbox)
    monkeypatch.setattr(Batches, "from_env", lambda: app.batches)
    monkeypatch.setattr(boto3, "client", lambda service: {"dynamodb": app.client}[service])
    return app


def test_the_reference_pages_are_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    status = write_reference.main(["--check"])

    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", GUIDES, ids=_name)
def test_the_snippets_of_a_guide_run(page: Path, application: MemoryApplication) -> None:
    snippets = list(snippets_of(page))
    assert not any(local for _, local in snippets), "guides run in memory"
    application.outbox.create_topic(Topic("orders"))
    namespace: dict[str, Any] = {"__name__": "__main__"}

    for code, _ in snippets:
        exec(compile(code, page, "exec"), namespace)  # noqa: S102 - the document's own code

    application.run(seconds=5)


def test_the_example_of_the_readme_delivers_its_message(application: MemoryApplication) -> None:
    namespace: dict[str, Any] = {}
    for code, _ in snippets_of(ROOT / "README.md"):
        exec(compile(code, "README.md", "exec"), namespace)  # noqa: S102 - the document's own code

    application.run()

    address = "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/billing"
    [taken] = application.destinations[address].received
    assert taken.message.body == b'{"order": "7", "total": 42}'
    order = application.client.get_item(TableName="Orders", Key={"id": {"S": "7"}})["Item"]
    assert order["total"] == {"N": "42"}


def test_the_snippets_of_the_tutorial_run_in_memory_but_for_the_queue(
    application: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.client.delete_table(TableName="Orders")  # the tutorial makes it
    queue = _Queue(application)
    clients = {"dynamodb": application.client, "sqs": queue}
    monkeypatch.setattr(boto3, "client", lambda service: clients[service])
    namespace: dict[str, Any] = {}

    for code, _ in snippets_of(TUTORIAL):
        exec(compile(code, TUTORIAL, "exec"), namespace)  # noqa: S102 - the document's own code

    assert [d.subscription for d in namespace["deliveries"]] == ["billing"]
    assert namespace["outbox"].outstanding_count("orders") == 0


class _Queue:
    """An SQS client of which the tutorial knows two methods; receiving lets the functions run."""

    def __init__(self, application: MemoryApplication) -> None:
        self._application = application

    def create_queue(self, *, QueueName: str) -> dict[str, str]:  # noqa: N803 - the SDK's
        return {"QueueUrl": f"https://sqs.us-east-1.amazonaws.com/123456789012/{QueueName}"}

    def receive_message(self, *, QueueUrl: str, WaitTimeSeconds: int) -> dict[str, Any]:  # noqa: N803 - the SDK's
        self._application.run(seconds=WaitTimeSeconds)
        received = self._application.destinations[f"sqs:{QueueUrl}"].received
        return {"Messages": [{"Body": m.message.body.decode()} for m in received]}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_relative_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{_name(page)}: {link}"
        assert not anchor or anchor in _anchors(target), f"{_name(page)}: {link}"


def test_every_make_command_of_the_documents_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (_name(page), target)
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {target for _, target in named} >= {"demo", "test", "up", "down", "synth", "deploy"}

    assert not [(page, target) for page, target in named if target not in targets]


def test_every_page_is_reached_from_the_readme() -> None:
    reached, open_ = {ROOT / "README.md"}, [ROOT / "README.md"]
    while open_:
        page = open_.pop()
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                open_.append(target)

    assert not [_name(page) for page in PAGES if page not in reached]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 600


def test_no_page_names_a_place_of_one_machine() -> None:
    places = re.compile(r"/(?:work|home|root|tmp)/")
    assert not [_name(page) for page in PAGES if places.search(page.read_text())]
