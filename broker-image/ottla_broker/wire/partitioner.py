"""The partition of a key by murmur2, as in the Java producer and in librdkafka's
`murmur2_random`.
"""

from functools import lru_cache
from typing import Final

SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed."""
    size = len(data)
    hash_ = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hash_ = hash_ * _M & _MASK ^ word
    if rest := data[whole:]:
        hash_ = (hash_ ^ int.from_bytes(rest, "little")) * _M & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * _M & _MASK
    return hash_ ^ hash_ >> 15


@lru_cache(maxsize=1 << 16)
def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count
