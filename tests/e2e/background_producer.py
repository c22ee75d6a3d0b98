"""A producer in a thread, which sends records while a test does something else."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from confluent_kafka import Message, Producer

from tests.waiting import eventually

ENDS_WITHIN_S = 90.0
PAUSE_S = 0.01  # after every twenty records: it bounds the load and waits for nothing


@contextmanager
def produce_in_background(
    bootstrap: str,
    topic: str,
    partitions: int,
    value: Callable[[int], str],
    on_acknowledged: Callable[[Message], None],
    on_rejected: Callable[[str], None],
    *,
    pause_s: float = PAUSE_S,
    settings: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """An idempotent producer sends `value(0)`, `value(1)`, … to the partitions in turn until the
    block ends, and then waits for the remaining acknowledgements. `on_rejected` gets the error's
    text. If it or `on_acknowledged` raises an exception, producing stops, and the end of the block
    raises the exception. `pause_s`: after every twenty records. `settings` override the producer's,
    `enable.idempotence` too.
    """
    stopped = threading.Event()

    def on_delivery(error: object, message: Message) -> None:
        if error is None:
            on_acknowledged(message)
        else:
            on_rejected(str(error))

    def run() -> None:
        defaults = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        producer = Producer(defaults | dict(settings or {}))
        number = 0
        while not stopped.is_set():
            producer.produce(topic, value(number), partition=number % partitions, on_delivery=on_delivery)
            producer.poll(0)
            number += 1
            if number % 20 == 0:
                time.sleep(pause_s)
        assert producer.flush(ENDS_WITHIN_S - 30) == 0

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        try:
            yield
        finally:
            stopped.set()
        running.result(ENDS_WITHIN_S)


@contextmanager
def produce_numbers(
    bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str] | None = None
) -> Iterator[list[str]]:
    """Produces the numbers from 0 on, about 500 per second, and yields the list of acknowledged
    values, which grows. The block begins after the first acknowledgement. Raises AssertionError if
    a record is rejected or acknowledged twice.
    """
    acknowledged: list[str] = []

    def add_value(message: Message) -> None:
        acknowledged.append((message.value() or b"").decode())

    with produce_in_background(
        bootstrap, topic, partitions, str, add_value, fail_on_rejected_record, pause_s=0.04, settings=settings
    ):
        eventually(lambda: acknowledged, message="a first acknowledgement")
        yield acknowledged
    assert len(set(acknowledged)) == len(acknowledged)


def fail_on_rejected_record(reason: str) -> None:
    """Callback for `on_rejected`. Raises AssertionError."""
    raise AssertionError(f"a record was rejected: {reason}")
