"""Sends spans to an OpenTelemetry collector: OTLP over HTTP, Protobuf.
https://opentelemetry.io/docs/specs/otlp/#otlphttp

- Spans wait in a queue of MAX_QUEUED. Requests never wait: with the queue full, new spans are
  dropped and counted.
- A collector that cannot be reached, or answers with a status that OTLP calls retryable, gets the
  same spans again, after a pause that doubles up to MAX_PAUSE_S. Spans that it refuses are dropped.
- An outage, or a series of refusals, is one line in the log at its beginning, and one at its end.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from ottla_broker.metrics import TraceCounts
from ottla_broker.tracing.otlp_span import Attribute, OtlpSpan, export_request

logger = logging.getLogger(__name__)

MAX_QUEUED: Final = 2048
MAX_EXPORTED: Final = 512  # spans of one POST
INTERVAL_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
RETRYABLE: Final = frozenset({429, 502, 503, 504})


class CollectorUnavailable(Exception):
    """The reason why a POST may succeed later."""


class SpansRefused(Exception):
    """The reason why the collector will never accept the spans of a POST."""


Post = Callable[[bytes], Awaitable[None]]
"""Raises CollectorUnavailable, SpansRefused."""


class SpanExporter:
    """`resource`: attributes of this broker. `endpoint`: of the collector, for the log."""

    def __init__(self, post: Post, resource: Mapping[str, Attribute], endpoint: str, counts: TraceCounts) -> None:
        self._post = post
        self._resource = resource
        self._endpoint = endpoint
        self._counts = counts
        self._queue: deque[OtlpSpan] = deque()
        self._has_spans = asyncio.Event()
        self._is_failing = False
        self._dropped_before = 0  # how many spans were dropped before the present outage

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, spans: Sequence[OtlpSpan]) -> None:
        """Queues all spans of a request, or none of them if the queue is full."""
        if len(self._queue) + len(spans) > MAX_QUEUED:
            self._counts.dropped_spans += len(spans)
            return
        self._queue.extend(spans)
        self._has_spans.set()

    async def run(self) -> None:
        """Exports until it is cancelled."""
        pause_s = INTERVAL_S
        while True:
            await self._has_spans.wait()
            await asyncio.sleep(pause_s)  # gathers spans
            pause_s = INTERVAL_S if await self.export_queued() else min(pause_s * 2, MAX_PAUSE_S)

    async def export_queued(self) -> bool:
        """Sends what is queued. Returns False if the collector is unavailable."""
        while self._queue:
            spans = list(islice(self._queue, MAX_EXPORTED))
            try:
                await self._post(export_request(self._resource, spans))
            except CollectorUnavailable as reason:
                self._begin_outage(reason)
                return False
            except SpansRefused as reason:
                self._begin_outage(reason)
                self._counts.dropped_spans += len(spans)
            else:
                self._end_outage()
                self._counts.exported_spans += len(spans)
            for _ in spans:
                self._queue.popleft()
        self._has_spans.clear()
        return True

    def _begin_outage(self, reason: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._dropped_before = self._counts.dropped_spans
            logger.warning("cannot send traces to %s: %s; requests are served as before", self._endpoint, reason)

    def _end_outage(self) -> None:
        if self._is_failing:
            self._is_failing = False
            dropped = self._counts.dropped_spans - self._dropped_before
            logger.info("traces are sent to %s again; %d spans were dropped", self._endpoint, dropped)
