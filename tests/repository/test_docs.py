"""The documents: reference pages up to date, snippets that run, commands that exist."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import fairbox
import fairbox.errors
import pytest
from fairbox import Batches, Outbox, Topic
from fairbox.testing import ManualClock
from fairbox.testing.application import MemoryApplication

from scripts import write_reference
from scripts.marked_parts import run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
LIBRARY = ROOT / "layers/fairbox/python"
TUTORIAL = ROOT / "docs/tutorial/first-outbox.md"
LOCAL = "<!-- local application -->\n"
_PYTHON = re.compile(
    r"^(?P<local>" + re.escape(LOCAL) + r")?```python\n(?P<code>.*?)^```$"
    r"|^<!-- check\n(?P<check>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


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
    status = run("write_reference.py", write_reference.PAGES, ["--check"])

    assert status == 0, capsys.readouterr().out


def test_every_name_of_the_library_is_on_a_page_of_it() -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs/reference").glob("library*.md"))
    shown = set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    names = {name for name in fairbox.__all__ if not hasattr(fairbox.errors, name)}

    assert {f"fairbox.{name}" for name in names} | {"fairbox.inbox", "fairbox.testing"} <= shown


def test_every_attribute_of_an_item_is_on_the_page_of_tables() -> None:
    page = (ROOT / "docs/reference/tables.md").read_text()
    constant = re.compile(r'^([A-Z][A-Z_]+): Final = "(\w+)"  # ', re.MULTILINE)
    modules = ("tables/*.py",)
    named = [
        f"| `{value}` | {name.lower().replace('_', ' ')} |"
        for pattern in modules
        for module in (LIBRARY / "fairbox").glob(pattern)
        for name, value in constant.findall(module.read_text())
    ]

    assert len(named) > 100
    assert [row for row in named if row not in page] == []


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


def test_every_table_begins_with_its_header() -> None:
    wrong = [
        f"{_name(page)}: {block[:60]}"
        for page in PAGES
        for block in re.split(r"\n\s*\n", page.read_text(encoding="utf-8"))
        if block.startswith("| ") and not re.match(r".+\n\|[-|: ]+\|(\n|$)", block)
    ]
    assert wrong == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 600


def test_no_page_names_a_place_of_one_machine() -> None:
    places = re.compile(r"/(?:work|home|root|tmp)/")
    assert not [_name(page) for page in PAGES if places.search(page.read_text())]
