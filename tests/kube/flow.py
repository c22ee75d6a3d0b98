"""A producer and what it wrote, while something happens to the brokers: every record numbered, sent idempotently, and looked for afterwards."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import confluent_kafka as ck

from tests.clients import librdkafka as rd

PAUSE_S = 0.002


@dataclass
class Flow:
    """`with Flow(bootstrap, topic) as flow:` writes until its end. `longest_s`: the longest that one record took to be acknowledged."""

    bootstrap: str
    topic: str
    partitions: int = 6
    sent: int = 0
    acknowledged: int = 0
    longest_s: float = 0.0
    errors: list[str] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Flow":
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "the producer does not end"

    def _write(self) -> None:
        producer = ck.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
            }
        )
        while not self._end.is_set():
            producer.produce(self.topic, str(self.sent).encode(), on_delivery=self._delivered(time.monotonic()))
            self.sent += 1
            producer.poll(0)
            time.sleep(PAUSE_S)
        producer.flush(60)

    def _delivered(self, since: float):  # type: ignore[no-untyped-def]
        def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.acknowledged += 1
                self.longest_s = max(self.longest_s, time.monotonic() - since)

        return delivered

    def check(self) -> None:
        """No error, nothing lost, nothing doubled."""
        assert self.errors == []
        assert self.acknowledged == self.sent > 0
        seen = Counter(
            int(it.value())
            for partition in range(self.partitions)
            for it in rd.consume(self.bootstrap, self.topic, partition=partition)
        )
        assert len(seen) == self.sent, f"{self.sent - len(seen)} records are missing"
        assert max(seen.values()) == 1, f"{sum(it > 1 for it in seen.values())} records are there twice"
