"""Lambda's Invoke, for messages whose destination is a function of the template."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.requests import Request

    from local.functions.invoker import Invoker


class LambdaApi:
    """Answers `Invoke` of type RequestResponse; every other call is 404.

    Args:
        invoker: runs the functions.
        names: names of the functions, physical ones.
    """

    def __init__(self, invoker: Invoker, names: Collection[str]) -> None:
        self._invoker = invoker
        self._names = names
        path = "/2015-03-31/functions/{name}/invocations"
        self.app = Starlette(routes=[Route(path, self._invoke, methods=["POST"])])

    async def _invoke(self, request: Request) -> Response:
        name = request.path_params["name"].rpartition(":function:")[2].partition(":")[0]
        if name not in self._names:
            return JSONResponse(
                {"Message": f"Function not found: {name}"},
                status_code=404,
                headers={"x-amzn-ErrorType": "ResourceNotFoundException"},
            )
        result = await asyncio.to_thread(self._invoker.invoke, name, await request.body())
        error = {"X-Amz-Function-Error": result.function_error} if result.function_error else {}
        return Response(result.payload, media_type="application/json", headers=error)
