"""What a traced request reports to `ottla_broker.tracing`, which is imported with the first one."""

from collections.abc import Sequence
from typing import Protocol

from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.reply import DeferredResponse
from ottla_broker.wire.produce import ProduceRequest, ProduceResponsePartition, Topic


class RequestTrace(Protocol):
    """The trace of one request. Times are those of `RequestTimes.clock`."""

    def on_appended(
        self, request: ProduceRequest, results: Sequence[tuple[Topic, Sequence[ProduceResponsePartition]]], /
    ) -> None:
        """Called with the results of the appends, some of which may get an error later."""

    def on_waiting(
        self,
        uncommitted: Sequence[tuple[ProduceResponsePartition, Partition, LogAppendInfo]],
        response: DeferredResponse,
        /,
    ) -> None:
        """Called when `response` waits for replicas."""

    def end(self, queue_s: float, began_s: float, handled_s: float, *, has_waited: bool) -> None:
        """Called when the response is written to the socket, or when there is none. `queue_s`: how
        long the request was queued. `began_s`, `handled_s`: when its handler began and returned.
        `has_waited`: the response was not ready when the handler returned.
        """
