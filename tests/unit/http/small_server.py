"""The part of a server that metrics are read from."""

import time
from types import SimpleNamespace
from typing import Any

from ottla_broker.request_times import RequestTimes, ServedRequest
from ottla_broker.requests.context import ConnectionState
from ottla_broker.wire.api_keys import ApiKey

WAITING = [ServedRequest(ApiKey.PRODUCE, 0.0, 0.0, 0.0), ServedRequest(ApiKey.FETCH, 0.0, 0.0, 0.0)]


def small_server() -> Any:
    """A server that has served no request. On each of its three connections two requests wait."""
    pool = SimpleNamespace(allocated_bytes=12)
    listeners = ("PLAINTEXT", "PLAINTEXT", "INSIDE")
    return SimpleNamespace(
        dispatcher=SimpleNamespace(request_counts=[0] * 128, request_times=RequestTimes(time.perf_counter)),
        refused_connections=3,
        connections=[
            SimpleNamespace(state=ConnectionState("127.0.0.1", 1, listener), waiting_requests=lambda: WAITING)
            for listener in listeners
        ],
        certificates=SimpleNamespace(expire_at_s={"INSIDE": 1.8e9}),
        request_memory=pool,
        response_memory=pool,
    )
