"""Which partition of `__consumer_offsets` keeps a group: the same as Kafka's, so that a folder can move between the
two."""

OFFSETS_TOPIC = "__consumer_offsets"


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, wrapping at 32 bits, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(group: str, partitions: int) -> int:
    """The absolute value decides here (unlike in Kafka's partitioner, which drops the sign bit); the one number that
    has none counts as 0."""
    value = java_hash(group)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
