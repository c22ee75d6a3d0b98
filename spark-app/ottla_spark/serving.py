"""What a running pipeline answers over HTTP: /livez, /readyz (once its queries run), /status as JSON, and /metrics."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from ottla_spark.now import Now

READY: Final = ("running", "stopping", "finished")


@contextmanager
def serving(address: tuple[str, int] | None, now: Now) -> Iterator[int]:
    """On a thread of its own until the block ends; the port, 0 when there is no address."""
    if address is None:
        yield 0
        return
    server = (_Everywhere if not address[0] and socket.has_dualstack_ipv6() else ThreadingHTTPServer)(
        address, _handler(now)
    )
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(path: str, now: Now) -> tuple[int, str, str]:
    """Status, content type and text."""
    match path:
        case "/livez":
            return 200, "text/plain", "ok\n"
        case "/readyz":
            return (200 if now.state in READY else 503), "text/plain", f"{now.state}\n"
        case "/status":
            return 200, "application/json", json.dumps(now.told()) + "\n"
        case "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", now.figures()
    return 404, "text/plain", "there are /livez, /readyz, /status and /metrics\n"


class _Everywhere(ThreadingHTTPServer):
    """On all addresses of both families: a pod may have either."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _handler(now: Now) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content, text = answer(self.path.partition("?")[0], now)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
