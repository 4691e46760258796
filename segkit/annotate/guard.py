"""Who may talk to the server: only the page that was opened with the printed address.

Any web page that is open in the same browser could send requests to 127.0.0.1. Three checks keep it out: a secret token,
the Host header (a foreign name that resolves to 127.0.0.1), and the Origin of the websocket.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

REFUSED = 1008  # websocket: policy violation


class Guard:
    """Answer requests with the right token, host and origin; refuse all others in one line."""

    def __init__(self, app: App, *, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._cookie = f"segkit-{port}"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        sockets = " ".join(f"ws://{host}" for host in sorted(self._hosts))
        self._headers = [
            (name.encode(), value.encode())
            for name, value in {
                "content-security-policy": f"default-src 'self'; connect-src 'self' {sockets}; img-src 'self' blob:; "
                "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                "x-content-type-options": "nosniff",
                "referrer-policy": "no-referrer",
                "cross-origin-resource-policy": "same-origin",
                "cross-origin-opener-policy": "same-origin",
                "cache-control": "no-store",
            }.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        fault = self._fault(scope["type"], headers, asked)
        if fault is None:
            await self._app(scope, receive, self._adding(send, new=self._is_token(asked)))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": REFUSED, "reason": fault})
        else:
            kind = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 403, "headers": kind + self._headers})
            await send({"type": "http.response.body", "body": f"{fault}\n".encode()})

    def _fault(self, kind: str, headers: dict[str, str], asked: str) -> str | None:
        if headers.get("host", "") not in self._hosts:
            return "wrong host: open the address that segkit annotate printed"
        origin = headers.get("origin")
        if origin not in self._origins and (kind == "websocket" or origin is not None):
            return "wrong origin: only the page of segkit annotate may connect"
        if not (self._is_token(asked) or self._is_token(self._read_cookie(headers.get("cookie", "")))):
            return "no valid token: open the address that segkit annotate printed, with its token"
        return None

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())

    def _read_cookie(self, header: str) -> str:
        # by hand: a cookie of another program on this machine must not hide ours, whatever is in it
        entries = (entry.strip().partition("=") for entry in header.split(";"))
        return next((value for name, _, value in entries if name == self._cookie), "")

    def _adding(self, send: Send, *, new: bool) -> Send:
        """Add the security headers to every answer, and the cookie to that of the printed address."""
        cookie = f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = [*self._headers, (b"set-cookie", cookie.encode())] if new else self._headers
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        return sending
