"""Run a function's process, and record what it asks of AWS: the local runtime's exec wrapper.

`python function_process.py FOLDER COMMAND...`, where the command is `PYTHON -m MODULE ARGUMENT...`.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # last, so that nothing of the function's own is hidden
    sys.path[0:1] = []
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from botocore.client import BaseClient

from tests.support.iam.recording import Log


def main() -> None:
    """Run the module; record every call of a client of botocore, if it is a function of Fairbox."""
    folder, _, _, module, *arguments = sys.argv[1:]
    name = os.environ.get("POWERTOOLS_SERVICE_NAME", "")
    if name:
        record(Log(Path(folder)), name.removeprefix("fairbox-"))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def record(log: Log, who: str) -> None:
    """Let every client note its calls before it makes them."""
    base: Any = BaseClient
    call = base._make_api_call

    def recorded(self: Any, operation: str, given: dict[str, Any]) -> Any:
        log.note(who, self.meta.service_model.service_name, operation, given, self.meta.region_name)
        return call(self, operation, given)

    base._make_api_call = recorded


if __name__ == "__main__":
    main()
