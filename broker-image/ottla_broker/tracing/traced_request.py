"""One traced request: what it reports while it is served. Its spans are made after its response is
written.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.replication.partition import Partition
from ottla_broker.tracing.otlp_span import Attribute, Event, OtlpSpan
from ottla_broker.tracing.record_contexts import find_contexts
from ottla_broker.tracing.replication_watch import ReplicationWatch
from ottla_broker.tracing.request_spans import Phase, ServedRequest, request_spans
from ottla_broker.tracing.trace_context import TraceContext
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FetchRequest
from ottla_broker.wire.produce import ProduceRequest, ProduceResponsePartition, Topic
from ottla_broker.wire.request_header import RequestHeader

MAX_PARTITIONS: Final = 20
"""Partitions of a request that its span names, and whose followers are watched."""


@dataclass(frozen=True, slots=True)
class TracingServices:
    """`clock`: that of `RequestTimes`; `unix_ns`: time since 1970; `topic_name`: of a topic id,
    None if it is unknown; `random_bytes`: new ids; `export`: sends spans to the collector.
    """

    clock: Callable[[], float]
    unix_ns: Callable[[], int]
    topic_name: Callable[[UUID], str | None]
    random_bytes: Callable[[int], bytes]
    export: Callable[[list[OtlpSpan]], None]


@dataclass(slots=True, eq=False)
class TracedRequest:
    """Implements `requests.request_trace.RequestTrace`. `client`: attributes of its sender.
    `fetch`: None for a Produce request.
    """

    services: TracingServices
    client: dict[str, Attribute]
    header: RequestHeader
    fetch: FetchRequest | None = None
    _records: list[memoryview | None] = field(default_factory=list)  # until their headers are read
    _contexts: list[TraceContext] | None = None
    _results: Sequence[tuple[Topic, Sequence[ProduceResponsePartition]]] = ()
    _watches: list[ReplicationWatch] = field(default_factory=list)
    _replicated_s: float | None = None

    def on_appended(
        self, request: ProduceRequest, results: Sequence[tuple[Topic, Sequence[ProduceResponsePartition]]]
    ) -> None:
        self._results = results
        self._records = [
            records
            for (_, batches), (_, appended) in zip(request.topics, results, strict=True)
            for (_, records), result in zip(batches, appended, strict=True)
            if result.error is ErrorCode.none
        ]

    def on_waiting(
        self,
        uncommitted: Sequence[tuple[ProduceResponsePartition, Partition, LogAppendInfo]],
        response: asyncio.Future[Sequence[Buffer]],
    ) -> None:
        self._watches = [
            ReplicationWatch(partition, appended, self.services.clock)
            for _, partition, appended in uncommitted[:MAX_PARTITIONS]
        ]
        for watch in self._watches:
            watch.start()
        response.add_done_callback(self._on_replicated)  # it is done even if the client closes its connection
        response.get_loop().call_soon(self._find_contexts)  # while followers fetch, so that it delays nothing

    def _on_replicated(self, _: object) -> None:
        self._replicated_s = self.services.clock()
        for watch in self._watches:
            watch.stop()

    def _find_contexts(self) -> list[TraceContext]:
        if self._contexts is None:
            self._contexts = find_contexts(self._records)
            self._records = []
        return self._contexts

    def end(self, queue_s: float, began_s: float, handled_s: float, *, has_waited: bool) -> None:
        ended_s = self.services.clock() if has_waited else handled_s
        # After the other responses of this turn of the loop.
        asyncio.get_running_loop().call_soon(self._export, began_s - queue_s, began_s, handled_s, ended_s)

    def _export(self, received_s: float, began_s: float, handled_s: float, ended_s: float) -> None:
        clock_s, unix_ns = self.services.clock(), self.services.unix_ns()

        def ns(at_s: float) -> int:
            return unix_ns - round((clock_s - at_s) * 1e9)

        api = ApiKey(self.header.api_key).title
        request = ServedRequest(
            api,
            ns(received_s),
            ns(ended_s),
            self.client | self._attributes(api),
            list(self._phases(ns, received_s, began_s, handled_s, ended_s)),
            self._find_contexts(),
            self._error(),
        )
        self.services.export(request_spans(request, self.services.random_bytes))

    def _phases(
        self, ns: Callable[[float], int], received_s: float, began_s: float, handled_s: float, ended_s: float
    ) -> Iterator[Phase]:
        """The phases in their order. The time from the last one to the end of the request is a wait
        for earlier responses of the connection."""
        if received_s < began_s:
            yield Phase("queue", ns(received_s), ns(began_s))
        yield Phase("log append" if self.fetch is None else "log read", ns(began_s), ns(handled_s))
        if self._watches:
            replicated_s = ended_s if self._replicated_s is None else min(self._replicated_s, ended_s)
            yield Phase("wait for replicas", ns(handled_s), ns(replicated_s), self._replica_fetches(ns))
        elif self.fetch is not None and ended_s > handled_s:
            yield Phase("wait for records", ns(handled_s), ns(ended_s))

    def _replica_fetches(self, ns: Callable[[float], int]) -> list[Event]:
        """One for each follower that fetched beyond the records before the acknowledgement."""
        return [
            Event(
                "replica fetched",
                ns(fetch.at_s),
                {
                    "kafka.broker.id": fetch.broker,
                    "messaging.destination.name": fetch.topic,
                    "messaging.destination.partition.id": str(fetch.partition),
                    "messaging.kafka.offset": fetch.offset,
                },
            )
            for watch in self._watches
            for fetch in watch.fetches.values()
        ]

    def _attributes(self, api: str) -> dict[str, Attribute]:
        header = self.header
        attributes: dict[str, Attribute] = {
            "messaging.system": "kafka",
            "messaging.operation.name": api,
            "kafka.api.version": header.version,
            "kafka.correlation.id": header.correlation_id,
        }
        if header.client_id is not None:
            attributes["messaging.client.id"] = header.client_id
        partitions = list(self._partitions())
        if len({name for name, _, _ in partitions}) == 1:
            attributes["messaging.destination.name"] = partitions[0][0]
        if len(partitions) == 1:
            attributes["messaging.destination.partition.id"] = str(partitions[0][1])
            attributes["messaging.kafka.offset"] = partitions[0][2]
        elif partitions:
            attributes["kafka.partitions"] = [f"{name}-{index}@{offset}" for name, index, offset in partitions]
        return attributes

    def _partitions(self) -> Iterator[tuple[str, int, int]]:
        """Topic, partition and offset of MAX_PARTITIONS partitions at most. The offset is that of
        the first appended record, or the one to fetch from. A fetch that continues a session has
        only the partitions that it names.
        """
        if self.fetch is None:
            partitions = [
                (topic, one.partition, one.base_offset) for topic, results in self._results for one in results
            ]
        else:
            partitions = [(one.topic, one.partition, one.offset) for one in self.fetch.partitions[:MAX_PARTITIONS]]
        for topic, index, offset in partitions[:MAX_PARTITIONS]:
            name = topic if isinstance(topic, str) else self.services.topic_name(topic)
            yield name or str(topic), index, offset

    def _error(self) -> str | None:
        return next(
            (
                one.error.name.upper()
                for _, results in self._results
                for one in results
                if one.error is not ErrorCode.none
            ),
            None,
        )
