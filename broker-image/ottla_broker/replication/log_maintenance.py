"""Runs retention, checkpoints and compaction of the log directories at the configured intervals."""

import asyncio
from collections.abc import Sequence

from ottla_broker.config import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    PRODUCER_ID_EXPIRATION_MS,
    REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    Config,
)
from ottla_broker.log.cleaner import CleanerConfig
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.maintenance import MaintenanceIntervals, maintain

DYNAMIC_SETTINGS = (
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    PRODUCER_ID_EXPIRATION_MS,
)
"""Settings that may change while the broker runs."""


class LogMaintenance:
    """Maintains the logs of all log directories of a broker. `run` ends when it is cancelled."""

    def __init__(self, directories: Sequence[LogDir], config: Config) -> None:
        self._directories = directories
        self._config = config
        self._configure()
        for setting in DYNAMIC_SETTINGS:
            config.subscribe(setting, lambda _: self._configure())

    async def run(self) -> None:
        await asyncio.gather(*(maintain(directory, self._intervals()) for directory in self._directories))

    def _intervals(self) -> MaintenanceIntervals:
        return MaintenanceIntervals(
            retention_check_ms=self._config(LOG_RETENTION_CHECK_INTERVAL_MS),
            flush_checkpoint_ms=self._config(LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS),
            watermark_checkpoint_ms=self._config(REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS),
        )

    def _configure(self) -> None:
        cleaner = CleanerConfig(
            enabled=self._config(LOG_CLEANER_ENABLE),
            backoff_ms=self._config(LOG_CLEANER_BACKOFF_MS),
            dedupe_buffer_bytes=self._config(LOG_CLEANER_DEDUPE_BUFFER_SIZE),
            io_max_bytes_per_second=self._config(LOG_CLEANER_IO_MAX_BYTES_PER_SECOND),
        )
        for directory in self._directories:
            directory.cleaner.config = cleaner
            directory.producer_expiration_ms = self._config(PRODUCER_ID_EXPIRATION_MS)
