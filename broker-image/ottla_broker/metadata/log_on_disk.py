"""Opens a broker's copy of the metadata log on its disk, with the settings that configure it."""

from typing import Final

from ottla_broker.config import (
    METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
    METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS,
    METADATA_LOG_SEGMENT_BYTES,
    Config,
)
from ottla_broker.log.config import MAX_INT64, LogConfig
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.metadata_fetch import METADATA_TOPIC_ID
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.metadata.snapshot_generator import SnapshotIntervals

MAX_COMMIT_BYTES: Final = 64 << 20
"""Largest batch of metadata records: all records of one command, such as a topic with thousands of
partitions.
"""


def open_metadata_log(home: LogDir, config: Config) -> PartitionLog:
    """Opens the metadata log in the first log directory, or creates it. Only snapshots remove its
    segments, whatever the cluster's defaults for retention are.

    Raises KafkaError when it cannot be read. The broker cannot start then.
    """
    log_config = LogConfig(
        segment_bytes=config(METADATA_LOG_SEGMENT_BYTES),
        segment_ms=MAX_INT64,
        retention_ms=-1,
        max_message_bytes=MAX_COMMIT_BYTES,
    )
    home.load(lambda _: log_config, only_topic=METADATA_TOPIC)
    log = home.logs.get((METADATA_TOPIC, 0))
    if log is None:
        log = home.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, log_config)
    if log.failure is not None:
        raise log.failure
    return log


def snapshot_intervals(config: Config) -> SnapshotIntervals:
    return SnapshotIntervals(
        config(METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS), config(METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS)
    )
