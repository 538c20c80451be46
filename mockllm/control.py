"""The control plane: what lives under `/_mockllm/`, an ordinary Starlette app beside the raw data plane.

It is given what it shows, and knows neither recorder nor replay.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mockllm import __version__
from mockllm.core.matching import path_of
from mockllm.serve import ASGIApp

PREFIX = b"/_mockllm/"


def is_control(target: bytes) -> bool:
    """Does a request belong to the control plane?"""
    return path_of(target).startswith(PREFIX)


def control_plane(status: Callable[[], Mapping[str, Any]]) -> ASGIApp:
    """The app. `status` gives what /_mockllm/health says beside the version."""

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "version": __version__, **status()})

    async def unknown(request: Request, _error: Exception) -> JSONResponse:
        message = f"mockllm has no {request.url.path}; there is GET /_mockllm/health"
        return JSONResponse({"error": {"message": message, "type": "mockllm_control"}}, 404)

    return cast(ASGIApp, Starlette(routes=[Route("/_mockllm/health", health)], exception_handlers={404: unknown}))
