"""Records that come one after the other while a test does something else."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from confluent_kafka import Message, Producer

ENDS_WITHIN_S = 90.0
PACE_S = 0.01  # of the load, not a wait for anything: a pause after every twenty records


@contextmanager
def produce_in_background(
    bootstrap: str,
    topic: str,
    partitions: int,
    value: Callable[[int], str],
    on_acknowledged: Callable[[Message], None],
    on_rejected: Callable[[str], None],
) -> Iterator[None]:
    """An idempotent producer sends `value(0)`, `value(1)`, … to the partitions in turn for as long as this lasts, and then waits for the rest. What
    `acknowledged` and `refused` (of why) raise is raised here at the end."""
    over = threading.Event()

    def told(error: object, message: Message) -> None:
        if error is None:
            on_acknowledged(message)
        else:
            on_rejected(str(error))

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
        number = 0
        while not over.is_set():
            producer.produce(topic, value(number), partition=number % partitions, on_delivery=told)
            producer.poll(0)
            number += 1
            if number % 20 == 0:
                time.sleep(PACE_S)
        assert producer.flush(ENDS_WITHIN_S - 30) == 0

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        try:
            yield
        finally:
            over.set()
        running.result(ENDS_WITHIN_S)


def fail_on_rejected_record(why: str) -> None:
    """For `refused`: no record may be."""
    raise AssertionError(f"a record was refused: {why}")
