"""Moto's server as a program, without request logs, answering in one write."""

from __future__ import annotations

import argparse
import logging
import os

from moto.core.config import default_user_config
from moto.server import main as serve
from werkzeug.serving import WSGIRequestHandler

from local.engines import moto_queues
from local.workspace import LOOPBACK


def main() -> None:
    """Serve on the loopback interface until the process ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    chosen = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Connections are kept alive, and a reply in two writes would wait for a delayed
    # acknowledgement each time.
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    WSGIRequestHandler.wbufsize = -1
    moto_queues.install()
    # state machines run, where their parser is installed, and call the services of this server
    os.environ["MOTO_PORT"] = str(chosen.port)
    default_user_config["stepfunctions"] = {"execute_state_machine": True}
    serve(["-H", LOOPBACK, "-p", str(chosen.port)])


if __name__ == "__main__":
    main()
