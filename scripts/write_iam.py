"""Write the reference page of the IAM policies from the templates, or check it (`--check`)."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairbox_cdk.node import use_bundled_node

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs/reference/iam.md"
STACK: Final = "FairboxAccess"
_IMPORTED = re.compile(r"Fairbox\w+:ExportsOutput(?:Ref|FnGetAtt)([A-Za-z]+?)[0-9A-F]{8}(Arn)?.*")
_ARNS: Final = {
    "Outbox": "arn:${Partition}:dynamodb:${Region}:${Account}:table/${Outbox}",
    "Deliveries": "arn:${Partition}:dynamodb:${Region}:${Account}:table/${Deliveries}",
    "Batches": "arn:${Partition}:dynamodb:${Region}:${Account}:table/${Batches}",
    "Feeds": "arn:${Partition}:dynamodb:${Region}:${Account}:table/${Feeds}",
    "Bodies": "arn:${Partition}:s3:::${Bodies}",
    "ArchiveBucket": "arn:${Partition}:s3:::${Archive}",
    "AcksQueue": "arn:${Partition}:sqs:${Region}:${Account}:${Acks}",
    "DoorbellsNow": "arn:${Partition}:sqs:${Region}:${Account}:${Doorbells}",
    "DoorbellsLater": "arn:${Partition}:sqs:${Region}:${Account}:${LaterDoorbells}",
}
_INTRODUCTION: Final = """\
# IAM policies

*Written by `scripts/write_iam.py` from the synthesised templates.*

Stack `FairboxAccess` has a managed policy for each kind of user; its outputs give their ARNs, to
be attached to your roles. Below they stand as JSON, with the resources of your deployment written
as `${...}`: the names of the tables, of the buckets, of the queues of doorbells and of acks, and of
the HTTP API. What concerns feeds, policy `TokenIssuer` too, is there only with setting `feeds`.

What a policy names is what the library calls: a test runs every call of each kind of user and
compares. Producers and consumers are held to the partitions of the tables that they need
(`dynamodb:LeadingKeys`), so neither can change a topic, nor a consumer publish.

A consumer writes into the groups of batches, where the message that it gives up carries an item,
and not into their roots: it cannot seal or cancel one. Items that it works off by itself it acks
through the ack queue. Who opens batches by the library has what an operator has; a producer does it
over HTTP.

A producer reads topics and counts, and no bodies. One thing IAM cannot forbid: a write whose
condition fails may ask for the item that made it fail (`ReturnValuesOnConditionCheckFailure`), so
who may put can read a message whose id, topic and shard he knows. Whoever publishes to feeds by the
library reads their newest messages, because it numbers its own behind them; a service that must not
publishes to a topic of the outbox, and the topic's subscription `feed:NAME` does the rest.

`TokenIssuer` is for the service that knows your users. Who has it can make a token for any user and
for all topics, so who has it may read all feeds.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; with `--check` write nothing, and return 1 when it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to (%(default)s)")
    parser.add_argument("--assembly", type=Path, help="a cloud assembly; else one is synthesised")
    chosen = parser.parse_args(arguments)
    text = page(chosen.assembly or synthesised())
    if chosen.page.is_file() and chosen.page.read_text(encoding="utf-8") == text:
        return 0
    if chosen.check:
        print(f"{chosen.page.name}: stale: run scripts/write_iam.py")
        return 1
    chosen.page.write_text(text, encoding="utf-8")
    print(f"{chosen.page.name}: written")
    return 0


def synthesised() -> Path:
    """Synthesise the application as in `cdk.json`, with feeds; return the templates' folder."""
    os.environ["CDK_VALIDATION"] = "false"
    use_bundled_node()
    # the CDK starts Node when it is imported, so it comes after the line above
    from fairbox_cdk.application import build_application  # noqa: PLC0415
    from fairbox_cdk.config import load_context  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp(prefix="fairbox-iam-"))
    context = load_context(ROOT / "cdk.json", {"feeds": "true"})
    build_application(context=context, outdir=folder).synth()
    return folder


def page(assembly: Path) -> str:
    """Return the page of an assembly's templates."""
    (file,) = assembly.glob(f"{STACK}*.template.json")
    template = json.loads(file.read_text(encoding="utf-8"))
    parts = [_INTRODUCTION]
    for resource in template["Resources"].values():
        if resource["Type"] != "AWS::IAM::ManagedPolicy":
            continue
        properties = resource["Properties"]
        kind, _, does = properties["Description"].removeprefix("Fairbox ").partition(": ")
        document = json.dumps(plain(properties["PolicyDocument"]), indent=2)
        parts.append(f"## {kind}\n\n{does}\n\n```json\n{document}\n```\n")
    return "\n".join(parts)


def plain(value: Any) -> Any:
    """Return a part of a template with references written as `${...}`."""
    match value:
        case {"Ref": name}:
            return "${" + name.removeprefix("AWS::").removesuffix("Id") + "}"
        case {"Fn::ImportValue": name}:
            return _imported(name)
        case {"Fn::Join": [separator, parts]}:
            return separator.join(plain(part) for part in parts)
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
    return value


def _imported(name: str) -> str:
    found = _IMPORTED.fullmatch(name)
    if found is None:
        raise ValueError(f"no plain name for the import {name}")
    return _ARNS[found[1]] if found[2] else "${" + found[1] + "}"


if __name__ == "__main__":
    sys.exit(main())
