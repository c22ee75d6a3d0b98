"""The quorum of the metadata log, as this broker knows it."""

from ottla_broker.metrics.declaration import gauge

QUORUM_STATE = gauge(
    "kafka_server_raftmetrics_current_state",
    "1 for the role of this broker in the quorum of the metadata log.",
    "current_state",
)
QUORUM_LEADER = gauge(
    "kafka_server_raftmetrics_current_leader", "Leader of the metadata log that this broker knows; -1 for none."
)
QUORUM_VOTE = gauge(
    "kafka_server_raftmetrics_current_vote", "Candidate that this broker voted for in the current epoch; -1 for none."
)
QUORUM_APPEND_RATE = gauge(
    "kafka_server_raftmetrics_append_records_rate",
    "Records per second that this broker appended to the metadata log as its leader since the previous scrape.",
)
QUORUM_FETCH_RATE = gauge(
    "kafka_server_raftmetrics_fetch_records_rate",
    "Records per second of the metadata log that this broker fetched since the previous scrape.",
)
QUORUM_EPOCH = gauge("kafka_server_raftmetrics_current_epoch", "Epoch of the quorum that this broker knows.")
QUORUM_HIGH_WATERMARK = gauge(
    "kafka_server_raftmetrics_high_watermark", "High watermark of the metadata log on this broker."
)
QUORUM_LOG_END = gauge("kafka_server_raftmetrics_log_end_offset", "Log end offset of the metadata log on this broker.")
