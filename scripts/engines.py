"""Set-up of the engines: find Java; install DynamoDB Local, Iceberg and the webhook payloads."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from local.engines import iceberg, installation, payloads, servers
from local.workspace import LocalError, Workspace


def main() -> None:
    """Install what is not installed; on failure, print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SET_UPS, help="what to install; by default all")
    only = parser.parse_args().only
    try:
        servers.find_java()
        for name in [only] if only else SET_UPS:
            SET_UPS[name](Workspace())
    except LocalError as exc:
        sys.exit(f"fairbox: {exc}")


def _dynamodb(workspace: Workspace) -> None:
    with tqdm(desc="fairbox: DynamoDB Local", unit="file", leave=True, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            if done == 0:
                print("fairbox: fetching DynamoDB Local, 48 MB", file=sys.stderr)
            bar.total = total
            bar.update(done - bar.n)

        installation.install(workspace, progress=progress)


def _iceberg(workspace: Workspace) -> None:
    if not iceberg.jar(workspace).is_file():
        print("fairbox: fetching the Iceberg runtime, 50 MB", file=sys.stderr)
        iceberg.install(workspace)


def _payloads(workspace: Workspace) -> None:
    if payloads.install(workspace):
        print(f"fairbox: fetched the webhook payloads, {len(payloads.load(workspace))}")


SET_UPS = {"dynamodb": _dynamodb, "iceberg": _iceberg, "payloads": _payloads}


if __name__ == "__main__":
    main()
