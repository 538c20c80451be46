"""The control plane: what lives under `/_mockllm/`, an ordinary Starlette app beside the raw data plane.

It is given what it shows and changes, and knows neither recorder nor replay.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mockllm import __version__
from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.faults.spec import duration
from mockllm.core.matching import path_of
from mockllm.guard import Guard
from mockllm.journal import Entry, Filter, Journal
from mockllm.serve import ASGIApp

PREFIX = "/_mockllm/"
WAIT_US = 10_000_000
"""How long journal/wait waits where it is not said."""
MAX_WAIT_US = 600_000_000
MAX_BODY = 64 * 1024


class Controlled(Protocol):
    """What a control plane turns. `session` None means all sessions, or the default one where only one can be meant."""

    @property
    def journal(self) -> Journal: ...

    def exchanges(self) -> list[dict[str, Any]]:
        """The recordings in their order, and how often each was played."""
        ...

    def faults(self, session: str | None) -> dict[str, Any]:
        """The faults that apply in a session, and whether they are its own."""
        ...

    def put_faults(self, session: str | None, spec: str) -> None:
        """Give a session faults of its own. Raises SpecError."""
        ...

    def delete_faults(self, session: str | None) -> None:
        """Back to the server's faults."""
        ...

    def reset(self, session: str | None) -> None:
        """Play from the beginning again, count anew, and forget the journal; a session's faults stay."""
        ...

    def sessions(self) -> list[str]:
        """The names of the sessions there are."""
        ...

    def delete_session(self, name: str) -> bool:
        """Forget a session; whether there was one."""
        ...


def is_control(target: bytes) -> bool:
    """Does a request belong to the control plane?"""
    return path_of(target).startswith(PREFIX.encode())


def control_plane(
    status: Callable[[], Mapping[str, Any]], guard: Guard, controlled: Controlled | None = None
) -> ASGIApp:
    """The app. `status` gives what health says beside the version; `controlled` the rest, where there is one."""

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__, **status()})

    routes = [Route(f"{PREFIX}health", health)]
    for path, handlers in _handlers(controlled).items() if controlled is not None else ():
        routes.append(Route(f"{PREFIX}{path}", guarded(_by_method(handlers), guard), methods=list(handlers)))
    known = sorted(route.path for route in routes)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"mockllm has no {request.method} {request.url.path}; there are {', '.join(known)}"
        return _error(error.status_code, message, headers=error.headers)

    return cast(ASGIApp, Starlette(routes=routes, exception_handlers={404: unknown, 405: unknown}))


Handler = Callable[[Request], Awaitable[Response]]


def guarded(handler: Handler, guard: Guard) -> Handler:
    """The handler, for those only who may."""

    async def guarded_handler(request: Request) -> Response:
        refusal = guard.refusal({name.lower(): value for name, value in request.headers.items()})
        if refusal is not None:
            return _error(403, refusal)
        try:
            return await handler(request)
        except MockllmError as error:
            return _error(error.status, str(error), error.kind)

    return guarded_handler


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    async def dispatch(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return dispatch


def _error(
    status: int, message: str, kind: str = "mockllm_control", headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind}}, status, headers)


def _handlers(controlled: Controlled) -> dict[str, dict[str, Handler]]:
    journal = controlled.journal

    async def get_journal(request: Request) -> Response:
        return JSONResponse([entry.to_json() for entry in journal.entries(_filter(request))])

    async def delete_journal(request: Request) -> Response:
        return JSONResponse({"deleted": journal.delete(_filter(request))})

    async def wait(request: Request) -> Response:
        which, count = _filter(request, "count", "timeout"), _number(request, "count", 1)
        found = await journal.wait(which, count, _timeout(request) / 1e6)
        entries = [entry.to_json() for entry in found]
        return JSONResponse(entries, 200 if len(entries) >= count else 408)

    async def stream(request: Request) -> Response:
        following = journal.follow(_filter(request))  # from here on nothing is lost, whenever it is sent
        return StreamingResponse(_events(following), media_type="text/event-stream")

    async def exchanges(_request: Request) -> Response:
        return JSONResponse(controlled.exchanges())

    async def get_faults(request: Request) -> Response:
        return JSONResponse(controlled.faults(_session(request)))

    async def put_faults(request: Request) -> Response:
        controlled.put_faults(_session(request), _spec(await _body(request)))
        return JSONResponse(controlled.faults(_session(request)))

    async def delete_faults(request: Request) -> Response:
        controlled.delete_faults(_session(request))
        return JSONResponse(controlled.faults(_session(request)))

    async def reset(request: Request) -> Response:
        controlled.reset(_session(request))
        return JSONResponse({"reset": _session(request) or "all sessions"})

    async def sessions(_request: Request) -> Response:
        return JSONResponse(controlled.sessions())

    async def delete_session(request: Request) -> Response:
        name = request.path_params["name"]
        if not controlled.delete_session(name):
            return _error(404, f"there is no session {name!r}")
        return JSONResponse({"deleted": name})

    return {
        "exchanges": {"GET": exchanges},
        "journal": {"GET": get_journal, "DELETE": delete_journal},
        "journal/stream": {"GET": stream},
        "journal/wait": {"GET": wait},
        "faults": {"GET": get_faults, "PUT": put_faults, "DELETE": delete_faults},
        "reset": {"POST": reset},
        "sessions": {"GET": sessions},
        "sessions/{name}": {"DELETE": delete_session},
    }


async def _events(entries: AsyncIterator[Entry]) -> AsyncIterator[bytes]:
    """Entries as server-sent events; a comment first, so that a client knows that it is heard."""
    yield b": journal\n\n"
    async for entry in entries:
        yield b"id: %d\ndata: %s\n\n" % (entry.number, json.dumps(entry.to_json(), ensure_ascii=False).encode())


def _filter(request: Request, *more: str) -> Filter:
    known = {"session", "path", "miss", "ended", "after", *more}
    unknown = set(request.query_params) - known
    if unknown:
        raise UsageError(f"unknown filter {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    query = request.query_params
    return Filter(
        query.get("session"),
        query.get("path"),
        _flag(request, "miss"),
        _flag(request, "ended"),
        _number(request, "after", 0),
    )


def _flag(request: Request, name: str) -> bool | None:
    value = request.query_params.get(name)
    if value is None:
        return None
    if value.lower() not in ("true", "false", "1", "0"):
        raise UsageError(f"{name}={value} is neither true nor false")
    return value.lower() in ("true", "1")


def _number(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name, str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise UsageError(f"{name}={value} is no number")
    return int(value)


def _timeout(request: Request) -> int:
    value = request.query_params.get("timeout")
    found = WAIT_US if value is None else duration(value, "s")
    if found is None or found > MAX_WAIT_US:
        raise UsageError(f"timeout={value} is no duration such as 500ms or 5s, ten minutes at most")
    return found


def _session(request: Request) -> str | None:
    unknown = set(request.query_params) - {"session"}
    if unknown:
        raise UsageError(f"unknown parameter {sorted(unknown)[0]!r}; there is session")
    return request.query_params.get("session")


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise UsageError(f"a body of more than {MAX_BODY} bytes")
    return body


def _spec(body: bytes) -> str:
    """A fault spec, as text or as {"faults": "…"}."""
    text = body.decode(errors="replace").strip()
    if not text.startswith("{"):
        return text
    try:
        spec = json.loads(text)["faults"]
    except (ValueError, KeyError, TypeError):
        spec = None
    if not isinstance(spec, str):
        raise UsageError('send the faults as text (crlf+cut:at=3ev) or as {"faults": "crlf+cut:at=3ev"}')
    return spec
