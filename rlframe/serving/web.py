"""The HTTP side of a `PolicyService`: routes, bodies, tokens and metrics, as an ASGI application; and its server."""

from __future__ import annotations

import asyncio
import bisect
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rlframe.serving.bodies import MOST_BODY_BYTES, as_json, as_npy, rows_of_npy, rows_of_npz
from rlframe.serving.policy_service import ExpiredError, OutOfTurnError, PolicyService, UnknownError
from rlframe.serving.protocol import TOKEN_VARIABLE, VERSION, dumps, is_loopback, loads, shows_token
from rlframe.utils.errors import ConfigError, DataError

#: What a client says its version with, and wants actions in arrays with their dtypes.
VERSION_HEADER, PACKED = "x-rlframe-protocol", "application/vnd.rlframe+json"
_JSON, _NPY, _NPZ = "application/json", "application/x-npy", "application/x-npz"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (UnknownError, 404),
    (ExpiredError, 410),
    (OutOfTurnError, 409),
    (ValueError, 422),
)
_Answer = Callable[[Request], Awaitable[Response]]


class _Metrics:
    """What `GET /metrics` tells, in Prometheus' text format."""

    def __init__(self, service: PolicyService) -> None:
        self._service = service
        self._requests: Counter[tuple[str, int]] = Counter()
        self._slots = [0] * (len(_SECONDS) + 1)
        self._seconds = 0.0

    def count(self, route: str, status: int, seconds: float) -> None:
        self._requests[route, status] += 1
        self._slots[bisect.bisect_left(_SECONDS, seconds)] += 1
        self._seconds += seconds

    def text(self) -> str:
        lines = ["# TYPE rlframe_requests_total counter"]
        for (route, status), count in sorted(self._requests.items()):
            lines.append(f'rlframe_requests_total{{route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE rlframe_request_seconds histogram")
        total = 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), self._slots, strict=True):
            total += count
            lines.append(f'rlframe_request_seconds_bucket{{le="{bound}"}} {total}')
        lines += [f"rlframe_request_seconds_sum {self._seconds:.6f}", f"rlframe_request_seconds_count {total}"]
        for name, kind, value in (
            ("rlframe_observations_total", "counter", self._service.rows),
            ("rlframe_batches_total", "counter", self._service.batches),
            ("rlframe_sessions", "gauge", self._service.open_sessions),
        ):
            lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"


class _Routes:
    """Answers requests; what callers do wrong becomes a status and one sentence."""

    def __init__(self, service: PolicyService, token: str | None) -> None:
        self._service, self._token = service, token
        self._metrics = _Metrics(service)

    def routes(self) -> list[Route]:
        """Returns the table of paths."""
        return [
            self._route("/health", self._health, "GET", free=True),
            self._route("/metrics", self._tell_metrics, "GET"),
            self._route("/contract", self._contract, "GET"),
            self._route("/act", self._act, "POST"),
            self._route("/sessions", self._open, "POST"),
            self._route("/sessions/{session}/act", self._step, "POST"),
            self._route("/sessions/{session}", self._end, "DELETE"),
        ]

    def _route(self, path: str, answer: _Answer, method: str, *, free: bool = False) -> Route:
        async def respond(request: Request) -> Response:
            began = time.perf_counter()
            response = await self._respond(request, answer, free)
            self._metrics.count(path, response.status_code, time.perf_counter() - began)
            return response

        return Route(path, respond, methods=[method])

    async def _respond(self, request: Request, answer: _Answer, free: bool) -> Response:
        if not free and not shows_token(self._token, request.headers.get("authorization")):
            return _refusal(
                401, f"wanted this server's token in the header Authorization: Bearer ...; see {TOKEN_VARIABLE}"
            )
        version = request.headers.get(VERSION_HEADER)
        if version not in (None, str(VERSION)):
            return _refusal(
                426,
                f"got a client of version {version}, this server has {VERSION}: install the same version of rlframe on "
                "both sides",
            )
        try:
            return await answer(request)
        except HTTPException as error:
            return _refusal(error.status_code, error.detail)
        except Exception as error:
            for kind, status in _STATUS:
                if isinstance(error, kind):
                    return _refusal(status, str(error))
            return _refusal(500, str(error))

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _tell_metrics(self, _: Request) -> Response:
        return PlainTextResponse(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def _contract(self, _: Request) -> Response:
        return JSONResponse(self._service.contract())

    async def _act(self, request: Request) -> Response:
        kind, body = await _body(request)
        if kind in (_NPY, _NPZ):
            policy_id, explore = request.query_params.get("policy"), _flag(request.query_params.get("explore"))
            _, policy = self._service.policy(policy_id)
            space = self._service.space_of(policy)
            rows, single = (rows_of_npy if kind == _NPY else rows_of_npz)(space, body)
            actions = await self._service.act(policy_id, rows, explore)
            default = _NPY
        else:
            message = _message(body, {"policy", "explore", "observation", "observations"})
            single = "observation" in message
            if single == ("observations" in message):
                raise DataError("wanted either 'observation', which is one, or 'observations', a list")
            rows = [message["observation"]] if single else _several(message["observations"])
            actions = await self._service.act(_text(message, "policy"), rows, _flag(message.get("explore")))
            default = kind
        return _actions(_accepted(request, default), actions, single)

    async def _open(self, request: Request) -> Response:
        _, body = await _body(request, _JSON, PACKED)
        message = _message(body, {"policy", "explore"})
        made = self._service.open_session(_text(message, "policy"), _flag(message.get("explore")))
        return JSONResponse({"session": made}, 201)

    async def _step(self, request: Request) -> Response:
        kind, body = await _body(request, _JSON, PACKED)
        message = _message(body, {"observation", "reward", "step"})
        if "observation" not in message:
            raise DataError("observation: got none, wanted the one to act on")
        action = await self._service.act_in_session(
            request.path_params["session"], message["observation"], _number(message, "reward"), _whole(message, "step")
        )
        return _actions(_accepted(request, kind), [action], True)

    async def _end(self, request: Request) -> Response:
        self._service.end_session(request.path_params["session"])
        return Response(status_code=204)


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


async def _body(request: Request, *wanted: str) -> tuple[str, bytes]:
    """Returns a request's content type, and its body as far as it is not too long."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    known = wanted or (_JSON, PACKED, _NPY, _NPZ)
    if kind not in known:  # a web page could send others without asking
        raise HTTPException(415, f"got Content-Type {kind!r}, wanted one of {', '.join(known)}")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BODY_BYTES:
            raise HTTPException(413, f"got a body of more than {MOST_BODY_BYTES} bytes, which is the most")
        parts.append(part)
    return kind, b"".join(parts)


def _message(body: bytes, known: set[str]) -> dict[str, Any]:
    message = loads(body or b"{}")
    if not isinstance(message, dict) or not message.keys() <= known:
        got = sorted(map(str, message)) if isinstance(message, dict) else f"a {type(message).__name__}"
        raise DataError(f"got {got}, wanted an object with some of {sorted(known)}")
    return message


def _several(value: Any) -> list[Any]:
    if isinstance(value, list) or getattr(value, "ndim", 0) > 0:
        return list(value)
    raise DataError(f"observations: got a {type(value).__name__}, wanted a list")


def _text(message: dict[str, Any], key: str) -> str | None:
    value = message.get(key)
    if not isinstance(value, str | None):
        raise DataError(f"{key}: got {value!r:.60}, wanted text")
    return value


def _flag(value: Any) -> bool | None:
    values = {None: None, True: True, False: False, "true": True, "false": False}
    if not isinstance(value, bool | str | None) or value not in values:
        raise DataError(f"explore: got {value!r:.60}, wanted true or false")
    return values[value]


def _number(message: dict[str, Any], key: str) -> float | None:
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise DataError(f"{key}: got {value!r:.60}, wanted a number")
    return value


def _whole(message: dict[str, Any], key: str) -> int | None:
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise DataError(f"{key}: got {value!r:.60}, wanted a whole number")
    return value


def _accepted(request: Request, default: str) -> str:
    accept = request.headers.get("accept", "")
    return next((kind for kind in (_NPY, PACKED, _JSON) if kind in accept), default)


def _actions(kind: str, actions: list[Any], single: bool) -> Response:
    if kind == _NPY:
        return Response(as_npy(actions, single), media_type=_NPY)
    name, value = ("action", actions[0]) if single else ("actions", actions)
    if kind == PACKED:
        return Response(dumps({name: value}), media_type=PACKED)
    return JSONResponse({name: as_json(value) if single else [as_json(each) for each in value]})


def application(service: PolicyService, token: str | None = None) -> Starlette:
    """Returns a service as an ASGI application.

    Args:
        service: What acts.
        token: What callers must show, but for `/health`; None asks for nothing.
    """
    return Starlette(routes=_Routes(service, token).routes())


class ServiceServer:
    """Serves a `PolicyService` at an address.

        with ServiceServer(PolicyService(trainer)) as server:
            print(server.url)

    Args:
        service: What acts.
        host: Where it listens: a name or number of this machine.
        port: 0 takes a free one.
        token: What callers must show; by default the environment's `RLFRAME_POLICY_TOKEN`, or nothing.

    Attributes:
        url: Where it is.

    Raises:
        ConfigError: If others than this machine could connect without a token, or the port is taken.
    """

    def __init__(
        self, service: PolicyService, host: str = "127.0.0.1", port: int = 8000, token: str | None = None
    ) -> None:
        token = checked_token(host, token)
        self._service = service
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Only where the protocol is said does asyncio send answers at once; else each takes 40 ms.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen(128)  # who comes before `run` waits
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"cannot listen at {host}:{port} ({error}); --port 0 takes a free port") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            application(service, token), log_config=None, access_log=False, lifespan="off", server_header=False
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serves until the process is interrupted or `stop` is called."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            await self._service.close()

    def stop(self) -> None:
        """Ends `run`, wherever it runs, behind the requests that are under way."""
        self._server.should_exit = True

    def __enter__(self) -> ServiceServer:
        self._thread = threading.Thread(target=self.run, name="rlframe serving", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()


def checked_token(host: str, token: str | None = None) -> str | None:
    """Returns the token that callers must show, by default the environment's.

    Raises:
        ConfigError: If there is none, and others than this machine could connect.
    """
    token = token or os.environ.get(TOKEN_VARIABLE)
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"got the address {host} and no token, so that anybody who reaches this machine could use the policy; set "
            f"{TOKEN_VARIABLE} here and for the clients, or listen at 127.0.0.1"
        )
    return token


__all__ = ["PACKED", "VERSION_HEADER", "ServiceServer", "application", "checked_token"]
