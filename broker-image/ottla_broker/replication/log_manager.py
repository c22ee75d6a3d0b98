"""The log directories of a broker, from its start to its clean shutdown, as Kafka's `LogManager`.

While the broker runs, retention, checkpoints and compaction run at the configured intervals.
"""

import asyncio
import logging

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
from ottla_broker.log.disk import Disk
from ottla_broker.log.future_log import find_duplicates
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.maintenance import MaintenanceIntervals, maintain
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.runtime import Runtime

logger = logging.getLogger(__name__)

DYNAMIC_SETTINGS = (
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    PRODUCER_ID_EXPIRATION_MS,
)
"""All settings of `_configure`, which is called again when one changes. `log.cleaner.enable` never
does, because it is read-only."""


class LogManager:
    """`log_dirs`: in the order of `log.dirs`; empty before `attach`."""

    def __init__(self, config: Config, image: MetadataImage, disk: Disk, runtime: Runtime) -> None:
        self._config = config
        self._image = image
        self._disk = disk
        self._runtime = runtime
        self.log_dirs: list[LogDir] = []

    def attach(self) -> None:
        """Opens or creates the directories, without their partitions. Raises LogDirError."""
        for path in self._config.log_dirs:
            self.log_dirs.append(
                LogDir.attach(
                    path, disk=self._disk, runtime=self._runtime, node_id=self._config.node_id, cluster_id=None
                )
            )
        self._configure()
        for setting in DYNAMIC_SETTINGS:
            self._config.subscribe(setting, lambda _: self._configure())

    async def load(self, *, are_foreign: bool) -> None:
        """Opens the partitions, once the metadata have the configs of their topics. `are_foreign`:
        another program wrote the logs, and may have left gaps between segments. Raises LogDirError;
        KafkaError: KAFKA_STORAGE_ERROR."""
        for log_dir in self.log_dirs:
            log_dir.load(
                lambda topic: self._config.log_config(self._image.topic_config(topic)), gapless=not are_foreign
            )
        for log_dir, log in find_duplicates(self.log_dirs):
            logger.warning(
                "renaming %s to a stray folder: its partition is also in another log directory, which is used",
                log.directory,
            )
            log_dir.move_to_stray(log.topic, log.partition)
        if are_foreign:
            for log_dir in self.log_dirs:
                await log_dir.adopt_foreign_logs()  # before any other part treats the logs as Ottla's

    async def run(self) -> None:
        """Maintains the logs until it is cancelled."""
        await asyncio.gather(*(maintain(log_dir, self._intervals()) for log_dir in self.log_dirs))

    async def close(self) -> None:
        """Flushes the logs and writes the clean shutdown files."""
        for log_dir in self.log_dirs:
            await log_dir.close()

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
        for log_dir in self.log_dirs:
            log_dir.cleaner.config = cleaner
            log_dir.producer_expiration_ms = self._config(PRODUCER_ID_EXPIRATION_MS)
