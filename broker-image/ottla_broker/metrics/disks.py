"""Flushes and log directories."""

from ottla_broker.metrics.declaration import gauge, metric

FLUSH_TIMES = metric(
    "histogram",
    "ottla_log_flush_duration_seconds",
    "Duration of flushes of a log: writes of its indexes and syncs of its files.",
)
FLUSH_QUANTILES = metric(
    "summary",
    "kafka_log_logflushstats_logflushrateandtimems",
    "Milliseconds of ottla_log_flush_duration_seconds; quantiles of the last five minutes.",
)
OFFLINE_DIRECTORIES = gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that are offline.")
DIRECTORY_BYTES = gauge(
    "ottla_log_directory_total_bytes", "Size of the file system of a log directory.", "logDirectory"
)
DIRECTORY_USABLE = gauge(
    "ottla_log_directory_usable_bytes", "Free bytes of the file system of a log directory.", "logDirectory"
)
