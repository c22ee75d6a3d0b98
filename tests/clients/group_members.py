"""Members of a consumer group that poll in their own threads, so that a test can observe several at
once.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import confluent_kafka as ck

from tests.clients.librdkafka import to_librdkafka_names
from tests.waiting import eventually

SESSION_TIMEOUT_MS = 2000
# With Kafka's default of 3 s between heartbeats every rebalance would take that long.
FAST_SETTINGS = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 100, "fetch.wait.max.ms": 50}


class GroupMember:
    """A librdkafka consumer that polls until `leave`.

    `assigned` has its partitions' numbers, `revoked` counts revoked and lost assignments, `values`
    are the values received. `error`: the fatal error that has ended the member, or None.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.revoked = 0
        self.values: list[bytes] = []
        self.error: ck.KafkaError | None = None
        self._leaving = threading.Event()
        base = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **FAST_SETTINGS}
        self._consumer = ck.Consumer(base | to_librdkafka_names(settings))
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _on_assign(self, consumer: ck.Consumer, partitions: Sequence[ck.TopicPartition]) -> None:
        """Required: without it librdkafka does not call `_on_revoke`."""

    def _on_revoke(self, consumer: ck.Consumer, partitions: Sequence[ck.TopicPartition]) -> None:
        self.revoked += 1

    def _poll(self) -> None:
        while not self._leaving.is_set() and self.error is None:
            message = self._consumer.poll(0.05)
            self.assigned = frozenset(partition.partition for partition in self._consumer.assignment())
            if message is None:
                continue
            if (error := message.error()) is None:
                self.values.append(message.value())
            elif error.code() == ck.KafkaError._FATAL:
                self.error = error
        self._consumer.close()
        self.assigned = frozenset()

    def leave(self) -> None:
        """Commits and closes the consumer, which leaves the group unless it is a static member."""
        self._leaving.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the member did not end"


@contextmanager
def run_members(
    bootstrap: str, group: str, topic: str, member_settings: Sequence[dict[str, object]]
) -> Iterator[list[GroupMember]]:
    with ExitStack() as stack:
        made = []
        for settings in member_settings:
            made.append(GroupMember(bootstrap, group, topic, **settings))
            stack.callback(made[-1].leave)
        yield made


def wait_until_balanced(members: Sequence[GroupMember], partitions: int) -> None:
    """Waits until every partition has one owner and the numbers per member differ by one at
    most."""

    def is_balanced() -> bool:
        owned = [member.assigned for member in members]
        sizes = [len(part) for part in owned]
        is_complete = frozenset().union(*owned) == frozenset(range(partitions))
        return is_complete and sum(sizes) == partitions and max(sizes) - min(sizes) <= 1

    eventually(
        is_balanced, message=lambda: f"balanced assignment, not {[sorted(member.assigned) for member in members]}"
    )
