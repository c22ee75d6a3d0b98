"""Producers that run while brokers of mirrored clusters are killed."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message

from tests.clusters import ProcessCluster
from tests.e2e.background_producer import fail_on_rejected_record, produce_in_background
from tests.waiting import eventually

TOPIC = "orders"
PARTITIONS = 3


@contextmanager
def produce_to_source(source: ProcessCluster) -> Iterator[list[int]]:
    """Produces numbered records to all partitions. Yields a list whose only item is the number of
    acknowledged records.
    """
    acknowledged = [0]

    def count_record(_: Message) -> None:
        acknowledged[0] += 1

    with produce_in_background(
        source.bootstrap, TOPIC, PARTITIONS, lambda number: f"{number:0100}", count_record, fail_on_rejected_record
    ):
        yield acknowledged


def wait_for_acknowledgements(acknowledged: list[int], count: int = 1500) -> None:
    """Waits until the source has acknowledged this number of further records."""
    expected = acknowledged[0] + count
    eventually(lambda: acknowledged[0] >= expected, within_s=60, message=f"{count} more acknowledged records")


@contextmanager
def produce_to_target(target: ProcessCluster) -> Iterator[list[tuple[bytes, int]]]:
    """Produces to all partitions of a mirrored topic, and ignores rejections, so that records are
    acknowledged as soon as a partition is writable. Yields the acknowledged records, each as its
    value and its partition.
    """
    acknowledged: list[tuple[bytes, int]] = []

    def add_record(message: Message) -> None:
        acknowledged.append((message.value() or b"", message.partition() or 0))

    with produce_in_background(
        target.bootstrap, TOPIC, PARTITIONS, lambda number: f"ours {number}", add_record, lambda reason: None
    ):
        yield acknowledged
