"""Who may ask the web server of ``segkit annotate``: who has the printed address only.

Any web page that is open in the same browser could send requests to this server, and so could other users of the machine.
Three checks keep them out: a secret token, the Host header (a foreign name that resolves to 127.0.0.1), and the Origin. The
token is in no cookie, since a browser sends cookies to all ports of a machine, and in no command line.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from urllib.parse import unquote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

LOOPBACK = "127.0.0.1"
REFUSED = 1008  # websocket: policy violation
_HOST = re.compile(r"([\w.-]+|\[[\da-f:.]+\])(:\d+)?", re.IGNORECASE)


class Guard:
    """Answer requests with the right token, host and origin; refuse all others in one line.

    The files of the page itself need no token, and hold no secret: a browser asks for them without one. `host`,
    `allow_hosts` and `base_url` are those of `segkit.annotate.server.run`; a proxy may take the latter off the paths, or
    leave it there.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        host: str = LOOPBACK,
        allow_hosts: Iterable[str] = (),
        base_url: str = "/",
    ) -> None:
        self._app, self._token, self._base_url = app, token, unquote(base_url)
        self._further = {name_of_host(name) for name in allow_hosts}
        self._hosts = {LOOPBACK, "localhost", "[::1]", name_of_host(host)} | self._further

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(self._base_url):
            scope = {**scope, "path": scope["path"][len(self._base_url) - 1 :]}
        asked = HTTPConnection(scope)
        fault = self._fault(asked)
        if fault is None:
            await self._app(scope, receive, _adding(send, _headers(asked.headers["host"])))
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(REFUSED, fault)
        else:
            await PlainTextResponse(f"{fault}\n", 403, _headers())(scope, receive, send)

    def _fault(self, asked: HTTPConnection) -> str | None:
        host, origin = asked.headers.get("host", ""), asked.headers.get("origin")
        is_websocket, path = asked.scope["type"] == "websocket", asked.scope["path"]
        if name_of_host(host) not in self._hosts:
            return (
                "wrong host: open the address that segkit annotate printed, or name this one by --allow-host"
            )
        if (is_websocket or origin is not None) and not self._is_own(origin or "", host):
            return "wrong origin: only the page of segkit annotate may connect"
        token = asked.query_params.get("token")
        if token is None and not is_websocket and (path == "/" or path.startswith("/static/")):
            return None
        if not secrets.compare_digest((token or "").encode(), self._token.encode()):
            return "no valid token: open the address that segkit annotate printed, with its token"
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        scheme, _, site = origin.partition("://")
        # a proxy may have replaced the host that the browser named
        return scheme in ("http", "https") and (site == host or name_of_host(site) in self._further)


def name_of_host(host: str) -> str:
    """Return the name in a Host header, without the port: that of a tunnel is another one. It is empty if it is none."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1].lower()


def _headers(host: str | None = None) -> dict[str, str]:
    """Return the headers of every answer, which say what a page may do."""
    sockets = "" if host is None else f" ws://{host} wss://{host}"
    return {
        "content-security-policy": f"default-src 'self'; connect-src 'self'{sockets}; img-src 'self' blob:; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-store",
    }


def _adding(send: Send, headers: dict[str, str]) -> Send:
    """Add headers to an answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return sending
