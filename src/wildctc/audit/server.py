"""The server of a report: the page, its data and sound, and the decisions of everybody who has the address.

All addresses start with a secret token. Only the page's own files and the report's folders `data` and `audio` are given
out, so neither the store of decisions nor any file outside the report can be read.
"""

from __future__ import annotations

import html
import json
import secrets
import socket
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wildctc.audit.agreement import summarise
from wildctc.audit.assignment import Plan
from wildctc.audit.decisions import parse_decision
from wildctc.audit.store import DecisionStore
from wildctc.errors import MissingExtra, WildCTCError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"  # this machine only
STORE = "decisions.sqlite"
PORT = 8017
_LARGEST = 10_000_000  # bytes of a request
_LONGEST_NAME = 100  # characters of a reviewer's name or of a key
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {"Cache-Control": "no-cache", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


def make_app(folder: str | Path, store: DecisionStore, plan: Plan | None = None) -> Starlette:
    """Make the ASGI application of a report.

    Args:
        folder: The report.
        store: Where decisions are kept; its token is part of all addresses.
        plan: Who reviews what; None if everybody reviews everything.

    Returns:
        The application.
    """
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "audit") from None

    plan = plan or Plan()
    page = _read_page(plan)
    token = store.token()

    def give_page(request: Request) -> Response:
        name = request.path_params.get("name") or "index.html"
        if name not in page:
            return Response("not found", 404)
        return Response(page[name], media_type=_TYPES[Path(name).suffix], headers=_HEADERS)

    async def give_decisions(request: Request) -> Response:
        after = request.query_params.get("after", "")
        number = int(after) if after.isdecimal() and len(after) < 19 else 0
        last, rows = await run_in_threadpool(store.since, number) if number else await run_in_threadpool(store.latest)
        return JSONResponse({"last": last, "rows": [_public(row) for row in rows]}, headers=_HEADERS)

    async def take_decisions(request: Request) -> Response:
        try:
            entries = _check_entries(await _read_body(request), plan)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        rows = await run_in_threadpool(store.add, entries)
        return JSONResponse({"rows": [_public(row) for row in rows]}, headers=_HEADERS)

    async def give_summary(request: Request) -> Response:
        _, rows = await run_in_threadpool(store.latest)
        found = summarise([parse_decision(row) for row in rows if row["decision"]])
        return JSONResponse(vars(found) | {"conflicts": len(found.conflicts)}, headers=_HEADERS)

    class Guard:
        """Answers 404 to every address without the token. Compared in constant time, so that it cannot be guessed."""

        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            given = scope["path"].split("/")[1] if scope["type"] == "http" else ""
            allowed = secrets.compare_digest(given.encode(), token.encode())
            if scope["type"] == "lifespan" or allowed:
                await self.app(scope, receive, send)
            elif scope["type"] == "http":
                await Response("not found", 404)(scope, receive, send)

    folder = Path(folder)
    inside = [
        Route("/api/decisions", give_decisions, methods=["GET"]),
        Route("/api/decisions", take_decisions, methods=["POST"]),
        Route("/api/summary", give_summary),
        Mount("/data", StaticFiles(directory=folder / "data")),
        Mount("/audio", StaticFiles(directory=folder / "audio")),
        Route("/", give_page),
        Route("/{name}", give_page),
    ]
    app = Starlette(routes=[Mount(f"/{token}", routes=inside)])
    app.add_middleware(Guard)
    return app


def serve(folder: str | Path, host: str, port: int, plan: Plan | None = None) -> None:
    """Serve a report until the process is interrupted. Prints the address.

    Args:
        folder: The report. Decisions are kept in its file decisions.sqlite.
        host: The address to listen at; 127.0.0.1 is this machine only.
        port: The port; 0 takes a free one.
        plan: Who reviews what; None if everybody reviews everything.
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "audit") from None
    folder = Path(folder)
    with DecisionStore(folder / STORE) as store:
        listening = _listen(host, port)
        app = make_app(folder, store, plan)
        name = f"[{host}]" if ":" in host else host
        print(f"http://{name}:{listening.getsockname()[1]}/{store.token()}/", flush=True)
        print(f"decisions: {folder / STORE}; Ctrl+C stops the server", flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """Open the port before anything else, so that a port in use is one line."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # with the protocol named, asyncio turns Nagle's algorithm off, which costs 40 ms an answer
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(512)
    except (OSError, OverflowError) as error:
        raise WildCTCError(f"cannot listen at {host} port {port}: {error}; give another --port") from None
    return listening


def _read_page(plan: Plan) -> dict[str, bytes]:
    """The page's files. An attribute of the first element tells the page that there is a server, and the plan."""
    files = resources.files("wildctc.audit").joinpath("page").iterdir()
    page = {file.name: file.read_bytes() for file in files if Path(file.name).suffix in _TYPES}
    first = f'<html lang="en" data-server="{html.escape(json.dumps(vars(plan)))}">'
    page["index.html"] = page["index.html"].replace(b'<html lang="en">', first.encode(), 1)
    return page


async def _read_body(request: Request) -> Any:
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > _LARGEST:
            raise ValueError(f"more than {_LARGEST:,} bytes at once")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


def _check_entries(body: Any, plan: Plan) -> list[dict[str, Any]]:
    if not isinstance(body, list) or not all(isinstance(row, dict) for row in body):
        raise ValueError("not a list of objects")
    entries = [_check_entry(row) for row in body]
    for entry in entries:
        if plan.shares and entry["reviewer"] not in plan.shares:
            raise ValueError(f"{entry['reviewer']} is not one of the reviewers: {', '.join(plan.shares)}")
    return entries


def _check_entry(row: dict[str, Any]) -> dict[str, Any]:
    """One change: a decision with its key and reviewer. "decision": null takes the reviewer's decision back."""
    back = row.get("decision", "") is None
    decision = parse_decision(row | {"decision": "skip"} if back else row)
    key = row.get("key")
    for value, name in ((key, "key"), (decision.reviewer, "reviewer")):
        if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_NAME:
            raise ValueError(f"{name} must have 1 to {_LONGEST_NAME} characters")
    entry = {**vars(decision), "key": key, "decision": None if back else decision.decision}
    for value in entry.values():
        if value is not None and value != value.encode("utf-8", "replace").decode():
            raise ValueError("half a surrogate pair cannot be stored")
    return entry


def _public(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value != "" and name != "replaces"}
