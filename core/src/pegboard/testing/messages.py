"""A strict Messages service on loopback: it plays a script over the real wire and refuses what the real one refuses.

For plug-in authors, our own tests and `peg tour`: the production client runs unchanged against it.

    with MessagesService(["hello", {"content": [{"type": "tool_use", "name": "Read", "input": {...}}]}]) as service:
        ...                     # point the provider at service.url
        service.bodies[-1]      # the last request body

A script is a list of turns, a function ``body -> turn``, or a dict with ``turns``, ``routes`` and ``default``. A turn
is a text, a function ``body -> turn``, or a dict:

    content             blocks; a tool_use may carry ``raw_input`` (text, for broken JSON) in place of ``input``
    stop_reason, stop_sequence, usage, pieces (fragments of each block)
    delay, event_delay  seconds before the answer, and between its events
    http_status, error, headers        an error answer, e.g. 429 with ``{"retry-after": "1"}``
    stream_error        ``{"type", "message"}``: an error event in place of the end of the stream
    cut_after_events    break the connection after so many events
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from pegboard.testing.messages_blocks import sealed, signature_of
from pegboard.testing.messages_check import VERSIONS, problems
from pegboard.testing.messages_events import Given, answer_blocks, encode_event, encode_json, message_of, stream_of
from pegboard.testing.messages_http import Exchange, Server

if TYPE_CHECKING:
    import ssl

__all__ = ["MessagesService", "Recorded", "Script", "Turn", "problems", "sealed", "signature_of"]

Turn = str | Mapping[str, Any] | Callable[[dict[str, Any]], Any]
Script = Sequence[Turn] | Mapping[str, Any] | Callable[[dict[str, Any]], Any]

REQUEST_LIMIT = 32 * 1024 * 1024
"""[A] Largest request in bytes."""
MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
_SECRETS = frozenset({"authorization", "x-api-key", "cookie", "proxy-authorization"})
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


@dataclass
class Recorded:
    """One request that reached the service, and what became of it."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case; secrets are replaced by a digest."""
    raw: bytes = field(repr=False)
    """The body as it came; long conversations are kept in this form because it is the smallest."""
    at: float = field(default_factory=time.time)
    status: int = 0
    problems: list[str] = field(default_factory=list)
    """Why it was refused."""
    sent: int = 0
    """Events of the answer that have been sent."""
    hung_up: bool = False
    """The client closed the connection before the answer was complete."""

    @property
    def body(self) -> Any:
        """The decoded JSON of the body, made anew each time; None where there is none, or no JSON in UTF-8."""
        try:
            return json.loads(self.raw.decode("utf-8"), parse_constant=_no_constant) if self.raw else None
        except ValueError:
            return None

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.raw)


class MessagesService:
    """Plays a script while its ``with`` block runs. Thread-safe; every connection is its own thread.

    ``window`` refuses longer prompts (tokens, four bytes each), ``key`` refuses every other key, ``tls`` serves https.
    A script that has run out answers 400, so that a client stops at once and says why.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        models: Sequence[str] = MODELS,
        window: int = 1_000_000,
        max_output: int = 128_000,
        key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._play = Play(script)
        self._models = list(models)
        self._window = window
        self._max_output = max_output
        self._key = key
        self._given = Given()
        self._server = Server(self._handle, tls)
        self._scheme = "https" if tls else "http"
        self.requests: list[Recorded] = []

    @property
    def url(self) -> str:
        """Base URL, without a slash at the end."""
        return f"{self._scheme}://127.0.0.1:{self._server.port}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Bodies of the message requests so far, refused ones included."""
        return [entry.body for entry in self.requests if entry.path.split("?")[0] == "/v1/messages"]

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def _handle(self, exchange: Exchange) -> None:
        entry = recorded(exchange)
        self.requests.append(entry)
        path = urlsplit(exchange.path).path
        if exchange.method in ("GET", "HEAD"):
            return self._get(exchange, entry, path)
        if exchange.method != "POST" or path not in ("/v1/messages", "/v1/messages/count_tokens"):
            return _refuse(exchange, entry, 404, f"There is nothing at {exchange.method} {path}")
        body, counting = entry.body, path != "/v1/messages"
        if (refusal := self._refusal(exchange, entry, body, counting)) is not None:
            return _refuse(exchange, entry, *refusal)
        if counting:
            return send_json(exchange, entry, 200, {"input_tokens": tokens_of(entry)})
        return self._answer(exchange, entry, body)

    def _get(self, exchange: Exchange, entry: Recorded, path: str) -> None:
        if path == "/":
            return send_json(exchange, entry, 200, {})
        if path != "/v1/models":
            return _refuse(exchange, entry, 404, f"There is nothing at {path}")
        if (refusal := self._unknown_caller(exchange)) is not None:
            return _refuse(exchange, entry, *refusal)
        query = parse_qs(urlsplit(exchange.path).query)
        limit = int(query.get("limit", ["20"])[0])
        after = query.get("after_id", [""])[0]
        first = self._models.index(after) + 1 if after in self._models else 0
        page = self._models[first : first + limit]
        listing = {
            "data": [_model(name) for name in page],
            "has_more": first + limit < len(self._models),
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
        }
        return send_json(exchange, entry, 200, listing)

    def _unknown_caller(self, exchange: Exchange) -> tuple[int, str] | None:
        bearer = exchange.headers.get("authorization", "").removeprefix("Bearer ")
        key = exchange.headers.get("x-api-key") or bearer
        if not key:
            return 401, "x-api-key header is required"
        if self._key is not None and key != self._key:
            return 401, "invalid x-api-key"
        version = exchange.headers.get("anthropic-version")
        if version is None:
            return 400, "anthropic-version: header is required"
        if version not in VERSIONS:
            return 400, f"anthropic-version: {version!r} is not a valid version"
        return None

    def _refusal(self, exchange: Exchange, entry: Recorded, body: Any, counting: bool) -> tuple[int, str] | None:
        """Status and text of the refusal that the request deserves, if any."""
        if (refusal := self._unknown_caller(exchange)) is not None:
            return refusal
        if exchange.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return 400, "content-type: must be application/json"
        if entry.size > REQUEST_LIMIT:
            return 413, "Request exceeds the maximum size"
        if body is None:
            return 400, "The request body is not valid JSON in UTF-8"
        version = exchange.headers["anthropic-version"]
        found = problems(body, version=version, known=self._given.known, counting=counting)
        found = found or list(self._given.altered(body["messages"]))
        if not found and body.get("max_tokens", 1) > self._max_output:
            found = [f"max_tokens: {body['max_tokens']} > {self._max_output}, the most that this model can give"]
        if not found and tokens_of(entry) > self._window:
            found = [f"prompt is too long: {tokens_of(entry)} tokens > {self._window} maximum"]
        entry.problems = found
        return (400, found[0]) if found else None

    def _answer(self, exchange: Exchange, entry: Recorded, body: dict[str, Any]) -> None:
        turn = self._play.next(body)
        if turn is None:
            return _refuse(exchange, entry, 400, "The script has no further turn for this request")
        if exchange.gone(turn.get("delay", 0)):
            entry.hung_up = True
            return exchange.drop()
        if status := turn.get("http_status"):
            error = {"type": _KINDS.get(status, "api_error"), "message": "The service failed.", **turn.get("error", {})}
            return send_json(exchange, entry, status, {"type": "error", "error": error}, turn.get("headers", {}))
        blocks = answer_blocks(turn)
        self._given.remember(blocks)
        message = message_of(turn, blocks, body["model"], tokens_of(entry))
        if not body.get("stream"):
            return send_json(exchange, entry, 200, message, turn.get("headers", {}))
        entry.status = 200
        return send_events(exchange, entry, turn, [encode_event(event) for event in stream_of(turn, blocks, message)])


class Play:
    """Which turn comes next: the first route whose ``match`` holds, else the top-level turns."""

    def __init__(self, script: Script) -> None:
        plan: Mapping[str, Any] = script if isinstance(script, Mapping) else {"turns": script}
        self._routes = [[dict(route.get("match", {})), route["turns"], 0] for route in plan.get("routes", [])]
        self._routes.append([{}, plan.get("turns", ()), 0])
        self._default = plan.get("default")
        self._lock = threading.Lock()

    def next(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The turn for a request, as a dict; None when there is none left."""
        with self._lock:
            turn = self._pick(body)
        while callable(turn):
            turn = turn(body)
        if isinstance(turn, str):
            return {"content": [{"type": "text", "text": turn}]}
        return None if turn is None else dict(turn)

    def _pick(self, body: dict[str, Any]) -> Any:
        for route in self._routes:
            match, turns, taken = route
            if not _matches(match, body):
                continue
            if callable(turns):
                return turns
            if taken < len(turns):
                route[2] += 1
                return turns[taken]
        return self._default


def _matches(match: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """``system``, ``last``, ``any`` hold a text to be found there; ``tool`` a tool's name; ``model`` a part of it."""
    texts = {"system": body.get("system", ""), "last": body["messages"][-1:], "any": body["messages"]}
    tools = [tool.get("name") for tool in body.get("tools", [])]
    for key, value in match.items():
        if key in texts and value not in json.dumps(texts[key], ensure_ascii=False):
            return False
        if (key == "tool" and value not in tools) or (key == "model" and value not in body["model"]):
            return False
    return True


def recorded(exchange: Exchange) -> Recorded:
    """The record of a request, before it is answered."""
    headers = {
        name: "sha256:" + hashlib.sha256(value.encode()).hexdigest()[:8] if name in _SECRETS else value
        for name, value in exchange.headers.items()
    }
    return Recorded(exchange.method, exchange.path, headers, exchange.body)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def tokens_of(entry: Recorded) -> int:
    """How many tokens a request counts as: four bytes each."""
    return max(1, entry.size // 4)


def _model(name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name.replace("-", " ").title(),
        "created_at": "2026-10-07T00:00:00Z",
        "lifecycle": "active",
    }


def send_json(
    exchange: Exchange, entry: Recorded, status: int, value: Any, headers: Mapping[str, str] | None = None
) -> None:
    """Answer with JSON."""
    entry.status = status
    own = {"content-type": "application/json", **_request_id(entry)}
    exchange.answer(status, encode_json(value), {**own, **(headers or {})})


def _refuse(exchange: Exchange, entry: Recorded, status: int, text: str) -> None:
    entry.problems = entry.problems or [text]
    error = {"type": _KINDS.get(status, "api_error"), "message": text}
    send_json(
        exchange, entry, status, {"type": "error", "error": error, "request_id": _request_id(entry)["request-id"]}
    )


def _request_id(entry: Recorded) -> dict[str, str]:
    return {"request-id": f"req_{int(entry.at * 1e6):x}"}


def send_events(exchange: Exchange, entry: Recorded, turn: Mapping[str, Any], events: list[bytes]) -> None:
    """Answer with a stream of encoded events, as fast and as far as the turn says."""
    exchange.begin(
        {"content-type": "text/event-stream; charset=utf-8", **_request_id(entry), "cache-control": "no-cache"}
    )
    cut = turn.get("cut_after_events")
    pause = turn.get("event_delay", 0)
    if pause:
        for event in events[:cut]:
            exchange.chunk(event)
            entry.sent += 1
            if exchange.gone(pause):
                entry.hung_up = True
                return exchange.drop()
    else:
        exchange.chunk(*events[:cut])
        entry.sent = len(events[:cut])
    return exchange.end() if cut is None else exchange.drop()
