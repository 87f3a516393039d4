"""Write the policies of the IAM page from the templates, or check them (`--check`)."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairbox_cdk.node import use_bundled_node

from scripts.marked_parts import ROOT, run

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = "docs/reference/iam.md"
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


def policies(assembly: Path | None = None) -> Iterator[str]:
    """Yield each kind of user's policy, of a cloud assembly or one that is synthesised now."""
    (file,) = (assembly or synthesised()).glob(f"{STACK}*.template.json")
    template = json.loads(file.read_text(encoding="utf-8"))
    for resource in template["Resources"].values():
        if resource["Type"] != "AWS::IAM::ManagedPolicy":
            continue
        properties = resource["Properties"]
        kind, _, does = properties["Description"].removeprefix("Fairbox ").partition(": ")
        yield from (f"## {kind}", "", does, "", "```json")
        yield json.dumps(plain(properties["PolicyDocument"]), indent=2)
        yield from ("```", "")


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
    sys.exit(run("write_iam.py", {PAGE: {"policies": policies}}))
