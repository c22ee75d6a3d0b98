"""The size of the load of the benchmark of three brokers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadSize:
    """Numbers of records (`large`, `small`, `sustained`), of partitions and of repetitions; seconds
    (`*_s`)."""

    large: int = 600_000  # of 1 KiB
    small: int = 2_500_000  # of 100 bytes
    steady_s: float = 30.0
    warm_s: float = 10.0
    kills: int = 20
    pauses: int = 10
    controller_kills: int = 5
    restarts: int = 6
    partitions: int = 10_000
    idle_s: float = 10.0
    sustained: int = 500_000
    under_load_warm_s: float = 3.0
    under_load_s: float = 8.0


QUICK = LoadSize(
    large=60_000,
    small=250_000,
    steady_s=3.0,
    warm_s=1.0,
    kills=2,
    pauses=1,
    controller_kills=1,
    restarts=1,
    partitions=600,
    idle_s=3.0,
    sustained=100_000,
    under_load_warm_s=1.0,
    under_load_s=2.0,
)
