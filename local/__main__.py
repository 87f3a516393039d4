"""`python -m local up|down|status|export|synthesise`: the local application in the background."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

from local.cloudformation.synthesis import PROFILE, synthesise
from local.engines.endpoints import dynamodb_client
from local.engines.export import export_tables
from local.supervisor import State, Supervisor
from local.webhooks import SECRET_VARIABLE, SETTINGS, keys_of
from local.workspace import LocalError, Workspace


def main(arguments: list[str] | None = None) -> None:
    """Run the command; on failure, write one line to standard error and exit 1."""
    chosen = _parser().parse_args(arguments)
    workspace = Workspace()
    supervisor = Supervisor(workspace)
    try:
        if chosen.command == "up":
            _up(supervisor, workspace, durable=chosen.durable)
        elif chosen.command == "down":
            print("fairbox: ended" if supervisor.stop() else "fairbox: nothing ran")
        elif chosen.command == "serve":
            supervisor.serve(chosen.assembly, durable=chosen.durable)
        elif chosen.command == "synthesise":
            synthesise(workspace)
        elif chosen.command == "export":
            _export(supervisor, chosen.folder or workspace.root / "exports")
        else:
            state = supervisor.state()
            if state is None or not state.ready:
                sys.exit("fairbox: nothing runs")
            _show(state, workspace)
    except LocalError as exc:
        sys.exit(f"fairbox: {exc}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start; return when everything answers")
    serve = commands.add_parser("serve", help="run in the foreground until interrupted")
    serve.add_argument("assembly", type=Path, help="folder of the synthesised application")
    for command in (up, serve):
        command.add_argument(
            "--durable", action="store_true", help="keep the tables in .local/dynamodb"
        )
    export = commands.add_parser("export", help="export the tables as DynamoDB does to S3")
    export.add_argument("--folder", type=Path, help="stands for the bucket (.local/exports)")
    commands.add_parser("synthesise", help="write the application's templates, if they are stale")
    commands.add_parser("down", help="end what `up` started")
    commands.add_parser("status", help="show the addresses")
    return parser


def _up(supervisor: Supervisor, workspace: Workspace, *, durable: bool) -> None:
    state = supervisor.state()
    if state is not None:
        print("fairbox: runs already")
    else:
        state = supervisor.start(_assembly(workspace), durable=durable)
    _show(state, workspace)


def _assembly(workspace: Workspace) -> Path:
    """Synthesise the application; with keys for webhooks, with the settings for them."""
    if not keys_of(os.environ.get(SECRET_VARIABLE, "")):
        return synthesise(workspace)
    return synthesise(workspace, context=PROFILE | SETTINGS, name="cdk.signing.out")


def _export(supervisor: Supervisor, folder: Path) -> None:
    variables = supervisor.variables()
    made = export_tables(
        dynamodb_client(variables),
        variables,
        folder.resolve(),
        now=lambda: datetime.now(UTC),
        new_id=lambda: str(uuid.uuid4()),
    )
    for name, export in made.items():
        print(f"{name:<10}  {export.items} items  {export.folder}")


def _show(state: State, workspace: Workspace) -> None:
    width = max((len(name) for name in state.addresses), default=0)
    for name, address in state.addresses.items():
        print(f"{name:<{width}}  {address}")
    print(f"variables for the SDK and the commands: source {workspace.env_file}")
    if "dynamodb" in state.engines:
        print("DynamoDB Local listens on all interfaces; everything else on 127.0.0.1")


if __name__ == "__main__":
    main()
