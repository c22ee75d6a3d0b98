"""The size of the load of the benchmark of one broker."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadSize:
    """Numbers of records; seconds (`*_s`), bytes (`*_bytes`) or bytes per second (`*_per_s`)."""

    large: int = 1_500_000
    small: int = 8_000_000
    java: int = 2_000_000
    settings: int = 600_000
    latency: int = 5_000
    warm_latency: int = 5_000
    fan_out: int = 80_000
    fan_out_per_s: float = 10e6
    idle_s: float = 10.0
    many_warm_s: float = 5.0
    many_s: float = 4.0
    sustained: int = 1_000_000
    under_load_warm_s: float = 3.0
    under_load_s: float = 8.0
    wide: int = 3_000_000
    compacted: int = 2_000_000
    compacted_keys: int = 100_000
    cold_read_bytes: float = 8e9
    recovered_bytes: float = 20e9


QUICK = LoadSize(
    60_000,
    400_000,
    300_000,
    60_000,
    1_000,
    500,
    20_000,
    10e6,
    3.0,
    1.0,
    1.0,
    100_000,
    1.0,
    2.0,
    300_000,
    300_000,
    10_000,
    0.5e9,
    1e9,
)
