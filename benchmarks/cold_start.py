"""Cold start of the relay: CPU seconds of a fresh interpreter, beside a bare boto3 client."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Final

from benchmarks.figures import Figure
from local.cloudformation.identities import CREDENTIALS, REGION
from local.workspace import REPOSITORY

TURNS: Final = 9
BARE: Final = "import boto3; boto3.client('dynamodb')"
RELAY: Final = "from fairbox.functions import relay; relay.relay()"
_TELL: Final = "; import time; print(time.process_time())"


def figures(*, turns: int = TURNS) -> list[Figure]:
    """Return the cold start of the relay: imports, client, dispatcher; nothing is called.

    Args:
        turns: number of alternating starts of each; the medians are compared.
    """
    for code in (BARE, RELAY):
        _seconds(code)  # the bytecode is there from now on, as it is in the layers
    bare, relay = [], []
    for _ in range(turns):
        bare.append(_seconds(BARE))
        relay.append(_seconds(RELAY))
    found = statistics.median(relay) * 1000, statistics.median(bare) * 1000
    return [Figure("cold_start.relay", "CPU ms", found[0], found[1], "a bare boto3 client")]


def _seconds(code: str) -> float:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(REPOSITORY / "layers/fairbox/python"),
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "FAIRBOX_OUTBOX_TABLE": "outbox",
        "FAIRBOX_DELIVERIES_TABLE": "deliveries",
        "FAIRBOX_DOORBELL_QUEUE_URL": "http://127.0.0.1/doorbells.fifo",
        **CREDENTIALS,
    }
    done = subprocess.run(
        [sys.executable, "-c", code + _TELL],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return float(done.stdout)
