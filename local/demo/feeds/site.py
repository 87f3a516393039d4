"""The demo's service: its page, the client's module, tokens, and what the panes have seen."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairbox_cdk.node import bin_folder
from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

FOLDER = Path(__file__).parent
CLIENT = FOLDER.parents[2] / "clients/js/fairbox-feeds.ts"
_STRIP = (
    "const text = require('node:fs').readFileSync(process.argv[1], 'utf8');"
    "process.stdout.write(require('node:module').stripTypeScriptTypes(text))"
)


def client_module() -> bytes:
    """Return the client for JavaScript as a browser takes it: without its types."""
    command = [str(bin_folder() / "node"), "--no-warnings", "--eval", _STRIP, str(CLIENT)]
    return subprocess.run(command, check=True, capture_output=True).stdout


class Site:
    """The answers to the panes, as an ASGI application (`app`).

    Attributes:
        opened: set when a browser has the page, or none is to have it any more.
        seen: by pane, what it has told last.
    """

    def __init__(self, settings: Mapping[str, Any], token: Callable[[str], str]) -> None:
        self.opened = threading.Event()
        self.seen: dict[str, dict[str, Any]] = {}
        self._settings = settings
        self._token = token
        self._module = client_module()
        self.app = Starlette(
            routes=[
                Route("/", self._give_page),
                Route("/panes.mjs", lambda _: FileResponse(FOLDER / "panes.mjs")),
                Route(
                    "/fairbox-feeds.js",
                    lambda _: Response(self._module, media_type="text/javascript"),
                ),
                Route("/settings", lambda _: JSONResponse(self._settings)),
                Route("/token", self._give_token),
                Route("/seen", self._take_seen, methods=["POST"]),
            ]
        )

    def _give_page(self, _request: Request) -> Response:
        # two pages would empty the same inboxes
        if self.opened.is_set():
            text = "This run of the demo has its panes already. Start another: make demo-feeds"
            return PlainTextResponse(text, 409)
        self.opened.set()
        return FileResponse(FOLDER / "page.html")

    def _give_token(self, request: Request) -> Response:
        return PlainTextResponse(self._token(request.query_params["pane"]))

    async def _take_seen(self, request: Request) -> Response:
        seen = await request.json()
        self.seen[seen.pop("name")] = seen
        return Response()
