"""The size of the load of the benchmark of one broker."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadSize:
    """Numbers of records, by the lines of `bench.lines` that they are for; seconds (`*_s`), bytes
    (`*_bytes`) or bytes per second (`*_per_s`).
    """

    large: int = 1_500_000  # of 1 KiB
    small: int = 8_000_000  # of 100 bytes
    java: int = 2_000_000  # by the Java client
    settings: int = 600_000  # with each setting of the producer, and on each secured listener
    latency: int = 5_000
    warm_latency: int = 5_000
    fan_out: int = 80_000
    fan_out_per_s: float = 10e6
    idle_s: float = 10.0
    many_warm_s: float = 5.0  # of many producers or consumers
    many_s: float = 4.0
    sustained: int = 1_000_000
    under_load_warm_s: float = 3.0
    under_load_s: float = 8.0
    wide: int = 3_000_000  # spread over many partitions
    compacted: int = 2_000_000
    compacted_keys: int = 100_000  # different keys of these records
    cold_read_bytes: float = 8e9
    recovered_bytes: float = 20e9


QUICK = LoadSize(
    large=60_000,
    small=400_000,
    java=300_000,
    settings=60_000,
    latency=1_000,
    warm_latency=500,
    fan_out=20_000,
    idle_s=3.0,
    many_warm_s=1.0,
    many_s=1.0,
    sustained=100_000,
    under_load_warm_s=1.0,
    under_load_s=2.0,
    wide=300_000,
    compacted=300_000,
    compacted_keys=10_000,
    cold_read_bytes=0.5e9,
    recovered_bytes=1e9,
)
