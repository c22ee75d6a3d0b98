"""Records, bytes and requests of clients by topic, and what brokers replicate."""

from ottla_broker.metrics.declaration import counter

MESSAGES_IN = counter(
    "kafka_server_brokertopicmetrics_messagesin_total",
    "Records that producers wrote to partitions that this broker leads.",
    "topic",
)
BYTES_IN = counter(
    "kafka_server_brokertopicmetrics_bytesin_total",
    "Bytes that producers wrote to partitions that this broker leads.",
    "topic",
)
BYTES_OUT = counter(
    "kafka_server_brokertopicmetrics_bytesout_total", "Bytes that this broker sent to consumers.", "topic"
)
PRODUCE_REQUESTS = counter(
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "Appends that producers requested of the leader of a partition, one for each partition of a request.",
    "topic",
)
FAILED_PRODUCE_REQUESTS = counter(
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "Appends that the leader of a partition rejected.",
    "topic",
)
FETCH_REQUESTS = counter(
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "Reads for consumers that found records, one for each partition of a request.",
    "topic",
)
REPLICATION_BYTES_IN = counter(
    "kafka_server_brokertopicmetrics_replicationbytesin_total",
    "Bytes that this broker fetched from leaders as a follower.",
)
REPLICATION_BYTES_OUT = counter(
    "kafka_server_brokertopicmetrics_replicationbytesout_total",
    "Bytes that this broker sent to followers as a leader.",
)
