"""Finding a producer's last five batches again in the log, where a snapshot remembers only the last one.

Kafka's snapshots keep one batch for each producer. A client that had several batches in flight when the broker stopped may repeat an
older one; so before such a repetition is refused as out of sequence, the log is asked.
"""

from typing import TYPE_CHECKING, Final

from ottla_broker.log.producer_state import REMEMBERED, SEQUENCES, BatchMetadata, ProducerStateEntry
from ottla_broker.log.segment import CorruptSegment

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog

WINDOW: Final = 16 << 20  # bytes of log before the producer's last batch that are looked through


def recall(log: "PartitionLog", producer: ProducerStateEntry) -> None:
    """Fills `producer.batches` from the batches' headers in the log. KafkaError: KAFKA_STORAGE_ERROR."""
    producer.recalled = True
    if not producer.batches:
        return
    found: list[BatchMetadata] = []
    last = producer.batches[-1].last_offset
    budget = WINDOW
    at = log.segments.floor(last)
    while at >= 0 and budget > 0 and len(found) < REMEMBERED:
        segment = log.segments[at]
        stop = segment.offsets.floor(last) + log.config.max_message_bytes
        start = segment.offsets.boundary(max(min(stop, segment.size) - budget, 0), last)
        try:
            found = [
                BatchMetadata(
                    (header.base_sequence + header.last_offset_delta) % SEQUENCES,
                    header.last_offset,
                    header.last_offset_delta,
                    header.max_timestamp,
                )
                for _, header in segment.headers(start)
                if header.producer_id == producer.producer_id
                and header.producer_epoch == producer.epoch
                and header.base_sequence >= 0
                and header.last_offset <= last
            ] + found
        except CorruptSegment as error:
            raise log.corrupt(error, last) from error
        except OSError as error:
            raise log.io_failed("read", segment.path, error) from error
        budget -= segment.size - start
        at -= 1
    if found:
        producer.batches.clear()
        producer.batches.extend(found[-REMEMBERED:])
