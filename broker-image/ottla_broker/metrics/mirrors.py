"""Mirrors: how far led partitions are behind their source."""

from ottla_broker.metrics.declaration import gauge

MIRROR_LAG = gauge(
    "ottla_mirror_lag_records",
    "Offsets from the end of a led mirrored partition to its source's last known high watermark.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_LAG_SECONDS = gauge(
    "ottla_mirror_lag_seconds",
    "Time since a led mirrored partition last had all records of its source; 0 while it has them.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_LAG_BYTES = gauge(
    "ottla_mirror_lag_bytes",
    "Estimated bytes that a led mirrored partition lacks: its lag in offsets times the recent record size.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_SILENCE = gauge(
    "ottla_mirror_source_silence_seconds",
    "Time since the source last answered a fetch for a led mirrored partition; it does so every fetch.max.wait.ms.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_DIVERGED = gauge(
    "ottla_mirror_diverged_partitions",
    "Led partitions that cannot become mirrors without consent or proof: they have records that their source lacks.",
)
MIRROR_STOPPED = gauge(
    "ottla_mirror_stopped_partitions",
    "Led mirrored partitions that are stopped because their source is not the log that was copied.",
)
