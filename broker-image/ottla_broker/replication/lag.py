"""Followers that have stopped following, or cannot keep up, leave their ISRs, and those that fetch hear what retention has let go: one look at all
partitions now and then."""

import asyncio
from typing import Final

from ottla_broker.config import REPLICA_LAG_TIME_MAX_MS, Config
from ottla_broker.replication.partitions import Partitions

LOOKS: Final = 4  # per replica.lag.time.max.ms
PARTITIONS_PER_TURN: Final = 500


async def shrink_isrs_periodically(partitions: Partitions, config: Config) -> None:
    """Until cancelled."""
    while True:
        lag_max_s = config(REPLICA_LAG_TIME_MAX_MS) / 1000
        await asyncio.sleep(lag_max_s / LOOKS)
        for number, partition in enumerate(list(partitions)):
            partition.maybe_shrink_isr(lag_max_s)
            partition.notify_log_start_change()
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
