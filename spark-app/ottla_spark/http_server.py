"""HTTP endpoint of a running pipeline: /livez, /readyz (once its queries run), /status as JSON, and
/metrics.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from ottla_spark.progress_snapshot import ProgressSnapshot

READY_STATES: Final = ("running", "stopping", "finished")


@contextmanager
def serve_progress(address: tuple[str, int] | None, snapshot: ProgressSnapshot) -> Iterator[int]:
    """Serves on a thread until the block ends. Yields the port. If `address` is None, nothing is
    served and the port is 0.
    """
    if address is None:
        yield 0
        return
    server = (_DualStackServer if not address[0] and socket.has_dualstack_ipv6() else ThreadingHTTPServer)(
        address, _handler_class(snapshot)
    )
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def respond(path: str, snapshot: ProgressSnapshot) -> tuple[int, str, str]:
    """Status, content type and body."""
    match path:
        case "/livez":
            return 200, "text/plain", "ok\n"
        case "/readyz":
            return (200 if snapshot.state in READY_STATES else 503), "text/plain", f"{snapshot.state}\n"
        case "/status":
            return 200, "application/json", json.dumps(snapshot.to_json()) + "\n"
        case "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", snapshot.to_prometheus()
    return 404, "text/plain", "not found; known paths: /livez, /readyz, /status, /metrics\n"


class _DualStackServer(ThreadingHTTPServer):
    """Listens on all IPv4 and IPv6 addresses: a pod may have either."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _handler_class(snapshot: ProgressSnapshot) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content, text = respond(self.path.partition("?")[0], snapshot)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
