"""What a member of a consumer group was given, as the consumer protocol writes it.

Layout: version i16 · topics array of (name string · partitions array of i32) · user data. https://kafka.apache.org/protocol#protocol_consumer
"""

import struct

from ottla_operator.kafka.offsets import TopicPartition


def parse_assignment(data: bytes | None) -> frozenset[TopicPartition]:
    """The partitions of an assignment; none when it is empty or not of the consumer protocol."""
    if not data:
        return frozenset()
    try:
        return frozenset(_places(data))
    except (struct.error, UnicodeDecodeError):  # a group of another kind, such as Connect's, has its own form
        return frozenset()


def _places(data: bytes) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    (topics,) = struct.unpack_from(">i", data, 2)
    at = 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, at)
        name = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = struct.unpack_from(">i", data, at)
        found += [(name, partition) for partition in struct.unpack_from(f">{count}i", data, at + 4)]
        at += 4 + 4 * count
    return found
