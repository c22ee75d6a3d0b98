"""Settings of brokers in a cluster: topic creation, replication, broker lifecycle, consumer groups,
producers.
"""

from ottla_broker.config.setting import BROKER_SETTINGS, Section, UpdateMode
from ottla_broker.config.value_types import (
    MAX_INT32,
    MAX_INT64,
    boolean,
    integer,
    list_of,
    long,
    one_of,
    short,
    string,
)

# fmt: off
_creation = Section("Topic creation", BROKER_SETTINGS)

NUM_PARTITIONS = _creation.row("num.partitions", integer(at_least=1), 1,
    "Default number of partitions of a new topic.")
DEFAULT_REPLICATION_FACTOR = _creation.row("default.replication.factor", integer(at_least=1), 1,
    "Default replication factor of a new topic.")
AUTO_CREATE_TOPICS_ENABLE = _creation.row("auto.create.topics.enable", boolean(), True,
    "Whether the broker creates a missing topic when a client that allows it requests its metadata.")
DELETE_TOPIC_ENABLE = _creation.row("delete.topic.enable", boolean(), True, "Whether topics can be deleted.")

_replication = Section("Replication", BROKER_SETTINGS)

MIN_INSYNC_REPLICAS = _replication.row("min.insync.replicas", integer(at_least=1), 1,
    "Minimum number of in-sync replicas for a produce request with acks=all. Default of the topics' setting of the "
    "same name.", UpdateMode.CLUSTER_WIDE_ONLY)
UNCLEAN_LEADER_ELECTION_ENABLE = _replication.row("unclean.leader.election.enable", boolean(), False,
    "Whether a replica out of sync may become leader if no other is alive, losing the records that only the others "
    "had. Default of the topics' setting of the same name.", UpdateMode.CLUSTER_WIDE)
REPLICA_LAG_TIME_MAX_MS = _replication.row("replica.lag.time.max.ms", long(at_least=1), 30000,
    "Time in milliseconds after which a follower that has not caught up with its leader leaves the in-sync replicas.")
REPLICA_FETCH_MIN_BYTES = _replication.row("replica.fetch.min.bytes", integer(at_least=0), 1,
    "Minimum bytes of a response to a follower's fetch. With fewer the leader waits up to `replica.fetch.wait.max.ms`.")
REPLICA_FETCH_WAIT_MAX_MS = _replication.row("replica.fetch.wait.max.ms", integer(at_least=0), 500,
    "Maximum time in milliseconds that a follower's fetch waits for data. At most `replica.lag.time.max.ms`.")
REPLICA_FETCH_MAX_BYTES = _replication.row("replica.fetch.max.bytes", integer(at_least=0), 1048576,
    "Maximum bytes of one partition in a response to a follower. A larger first batch is still returned whole.")
REPLICA_FETCH_RESPONSE_MAX_BYTES = _replication.row("replica.fetch.response.max.bytes", integer(at_least=0), 10485760,
    "Maximum bytes of all partitions in a response to a follower.")
REPLICA_FETCH_BACKOFF_MS = _replication.row("replica.fetch.backoff.ms", integer(at_least=0), 1000,
    "Longest time in milliseconds that a follower waits after a failed fetch. After most errors the first pause is 20 "
    "ms, and each further failure doubles it.")
REPLICA_SOCKET_TIMEOUT_MS = _replication.row("replica.socket.timeout.ms", integer(at_least=1), 30000,
    "Longest time in milliseconds that a follower waits for a response of its leader, beyond the fetch's own wait. The "
    "first timeout is 2 seconds, and each one doubles the next. At least `replica.fetch.wait.max.ms`.")
_replication.row("replica.socket.receive.buffer.bytes", integer(at_least=-1), 65536,
    "Size of the receive buffer (SO_RCVBUF) of followers' sockets in bytes. -1: the operating system's default.",
    no_effect="followers' sockets have the operating system's buffers")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = _replication.row(
    "replica.high.watermark.checkpoint.interval.ms", long(at_least=1), 5000,
    "Interval in milliseconds at which high watermarks and log start offsets are written to disk.")
REPLICA_SELECTOR_CLASS = _replication.row("replica.selector.class",
    string("a class name of Kafka's whose last part is RackAwareReplicaSelector or LeaderSelector", empty=False), None,
    "Policy that selects the replica a consumer reads from. Kafka's RackAwareReplicaSelector prefers a replica in the "
    "consumer's rack. Not set: the leader.")
LEADER_REPLICATION_THROTTLED_RATE = _replication.row("leader.replication.throttled.rate", long(at_least=0), MAX_INT64,
    "Maximum bytes per second that the broker sends to throttled replicas of partitions that it leads.",
    UpdateMode.PER_BROKER)
FOLLOWER_REPLICATION_THROTTLED_RATE = _replication.row(
    "follower.replication.throttled.rate", long(at_least=0), MAX_INT64,
    "Maximum bytes per second that the broker fetches for throttled replicas of partitions that it follows.",
    UpdateMode.PER_BROKER)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = _replication.row(
    "replica.alter.log.dirs.io.max.bytes.per.second", long(at_least=0), MAX_INT64,
    "Maximum bytes per second at which the broker moves replicas between its log directories.", UpdateMode.PER_BROKER)

_lifecycle = Section("Broker lifecycle and controller", BROKER_SETTINGS)

BROKER_HEARTBEAT_INTERVAL_MS = _lifecycle.row("broker.heartbeat.interval.ms", integer(at_least=1), 500,
    "Interval in milliseconds of a broker's heartbeats to the controller.",
    differs="a shorter session needs more frequent heartbeats")
BROKER_SESSION_TIMEOUT_MS = _lifecycle.row("broker.session.timeout.ms", integer(at_least=1), 2500,
    "Time in milliseconds without a heartbeat after which the controller fences a broker and elects other leaders.",
    differs="Ottla has no long garbage collection pauses that a session must outlive")
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = _lifecycle.row(
    "initial.broker.registration.timeout.ms", integer(at_least=1), 60000,
    "Time in milliseconds after which a starting broker that cannot register with a controller exits.")
CONTROLLED_SHUTDOWN_ENABLE = _lifecycle.row("controlled.shutdown.enable", boolean(), True,
    "Whether a stopping broker first hands its leaderships over to other brokers.")
AUTO_LEADER_REBALANCE_ENABLE = _lifecycle.row("auto.leader.rebalance.enable", boolean(), True,
    "Whether the controller periodically restores preferred leaders.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = _lifecycle.row(
    "leader.imbalance.check.interval.seconds", long(at_least=1), 300,
    "Interval in seconds at which the controller restores preferred leaders.")
METADATA_LOG_SEGMENT_BYTES = _lifecycle.row("metadata.log.segment.bytes", integer(at_least=8388608), 1073741824,
    "Maximum size of a segment of the metadata log in bytes.")
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = _lifecycle.row(
    "metadata.log.max.record.bytes.between.snapshots", long(at_least=1), 20971520,
    "Maximum bytes of metadata records between two snapshots. A snapshot is also written when the records since the "
    "last one exceed both its size and 1 MiB.")
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = _lifecycle.row(
    "metadata.log.max.snapshot.interval.ms", long(at_least=0), 3600000,
    "Maximum time in milliseconds between two snapshots of metadata that have changed. 0: no limit.")

_groups = Section("Consumer groups", BROKER_SETTINGS)
GROUP_MIN_SESSION_TIMEOUT_MS = _groups.row("group.min.session.timeout.ms", integer(at_least=0), 6000,
    "Minimum session timeout in milliseconds that a member of a classic group may request.")
GROUP_MAX_SESSION_TIMEOUT_MS = _groups.row("group.max.session.timeout.ms", integer(at_least=0), 1800000,
    "Maximum session timeout in milliseconds that a member of a classic group may request.")
GROUP_INITIAL_REBALANCE_DELAY_MS = _groups.row("group.initial.rebalance.delay.ms", integer(at_least=0), 3000,
    "Time in milliseconds that the first rebalance of an empty group waits for more members. Each new member extends "
    "it, up to the rebalance timeout. 0 suits development.")
GROUP_MAX_SIZE = _groups.row("group.max.size", integer(at_least=1), MAX_INT32,
    "Maximum number of members of a classic group.")
GROUP_COORDINATOR_REBALANCE_PROTOCOLS = _groups.row(
    "group.coordinator.rebalance.protocols", list_of("classic", "consumer", "share", "streams"), "classic,consumer",
    "Group protocols that are enabled. The classic protocol always is. Without `consumer` the broker refuses consumers "
    "with `group.protocol=consumer`. Share groups need `share`, or level 1 of the feature `share.version`. Streams "
    "groups need level 1 of `streams.version`. Both levels are the default.",
    differs="features enable share groups and streams groups")
GROUP_CONSUMER_SESSION_TIMEOUT_MS = _groups.row("group.consumer.session.timeout.ms", integer(at_least=1), 45000,
    "Time in milliseconds without a heartbeat after which a member of a consumer group is removed.")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = _groups.row("group.consumer.min.session.timeout.ms", integer(at_least=1), 45000,
    "Minimum of a group's `consumer.session.timeout.ms`.")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = _groups.row("group.consumer.max.session.timeout.ms", integer(at_least=1), 60000,
    "Maximum of a group's `consumer.session.timeout.ms`.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = _groups.row("group.consumer.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Interval in milliseconds at which members of consumer groups send heartbeats. A member learns of a new assignment "
    "with its next heartbeat.")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = _groups.row(
    "group.consumer.min.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Minimum of a group's `consumer.heartbeat.interval.ms`.")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = _groups.row(
    "group.consumer.max.heartbeat.interval.ms", integer(at_least=1), 15000,
    "Maximum of a group's `consumer.heartbeat.interval.ms`.")
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = _groups.row(
    "group.consumer.assignment.interval.ms", integer(at_least=0), 1000,
    "Time in milliseconds after an assignment of a consumer group before the next one is computed. Changes in between "
    "begin group epochs and are assigned together, with the first heartbeat after it. 0: every change is assigned at "
    "once (KIP-1263).")
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = _groups.row(
    "group.consumer.min.assignment.interval.ms", integer(at_least=0), 0,
    "Minimum of a group's `consumer.assignment.interval.ms`.")
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = _groups.row(
    "group.consumer.max.assignment.interval.ms", integer(at_least=0), 15000,
    "Maximum of a group's `consumer.assignment.interval.ms`.")
GROUP_CONSUMER_MAX_SIZE = _groups.row("group.consumer.max.size", integer(at_least=1), MAX_INT32,
    "Maximum number of members of a consumer group.")
GROUP_CONSUMER_ASSIGNORS = _groups.row("group.consumer.assignors", list_of("uniform", "range"), "uniform,range",
    "Assignors that members of consumer groups may ask for. The first is that of groups whose members ask for none.")
GROUP_CONSUMER_MIGRATION_POLICY = _groups.row("group.consumer.migration.policy",
    one_of("disabled", "upgrade", "downgrade", "bidirectional", any_case=True), "bidirectional",
    "Whether a group changes its protocol while it has members. `upgrade`: a classic group becomes a consumer group "
    "when the first member of the consumer protocol joins. `downgrade`: a consumer group becomes a classic group when "
    "its last member of the consumer protocol leaves.")
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = _groups.row(
    "group.consumer.regex.refresh.interval.ms", integer(at_least=10000), 600000,
    "Interval in milliseconds at which the topics of regular expressions are found again, in case authorizations have "
    "changed. New topics are found within 10 s in any case.")

_share = Section("Share groups", BROKER_SETTINGS)

GROUP_SHARE_SESSION_TIMEOUT_MS = _share.row("group.share.session.timeout.ms", integer(at_least=1), 45000,
    "Time in milliseconds without a heartbeat after which a member of a share group is removed.")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = _share.row("group.share.min.session.timeout.ms", integer(at_least=1), 45000,
    "Minimum of a group's `share.session.timeout.ms`.")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = _share.row("group.share.max.session.timeout.ms", integer(at_least=1), 60000,
    "Maximum of a group's `share.session.timeout.ms`.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = _share.row("group.share.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Interval in milliseconds at which members of share groups send heartbeats. A member learns of a new assignment "
    "with its next heartbeat.")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = _share.row("group.share.min.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Minimum of a group's `share.heartbeat.interval.ms`.")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = _share.row("group.share.max.heartbeat.interval.ms", integer(at_least=1), 15000,
    "Maximum of a group's `share.heartbeat.interval.ms`.")
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = _share.row(
    "group.share.assignment.interval.ms", integer(at_least=0), 1000,
    "Time in milliseconds after an assignment of a share group before the next one is computed. Changes in between "
    "begin group epochs and are assigned together, with the first heartbeat after it. 0: every change is assigned at "
    "once (KIP-1263).")
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = _share.row(
    "group.share.min.assignment.interval.ms", integer(at_least=0), 0,
    "Minimum of a group's `share.assignment.interval.ms`.")
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = _share.row(
    "group.share.max.assignment.interval.ms", integer(at_least=0), 15000,
    "Maximum of a group's `share.assignment.interval.ms`.")
GROUP_SHARE_MAX_SIZE = _share.row("group.share.max.size", integer(at_least=1, at_most=1000), 200,
    "Maximum number of members of a share group.")
GROUP_SHARE_MAX_SHARE_SESSIONS = _share.row("group.share.max.share.sessions", integer(at_least=1), 2000,
    "Maximum number of share sessions of a broker. A member has one with each broker that leads its partitions.")
GROUP_SHARE_DELIVERY_COUNT_LIMIT = _share.row("group.share.delivery.count.limit", integer(at_least=2, at_most=10), 5,
    "Maximum number of deliveries of a record. Then it is archived, and the group does not get it again.")
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = _share.row(
    "group.share.min.delivery.count.limit", integer(at_least=2, at_most=5), 2,
    "Minimum of a group's `share.delivery.count.limit`.")
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = _share.row(
    "group.share.max.delivery.count.limit", integer(at_least=5, at_most=25), 10,
    "Maximum of a group's `share.delivery.count.limit`.")
GROUP_SHARE_RECORD_LOCK_DURATION_MS = _share.row(
    "group.share.record.lock.duration.ms", integer(at_least=1000, at_most=3600000), 30000,
    "Time in milliseconds for which a delivered record is locked. Without an acknowledgement it is delivered again.")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = _share.row(
    "group.share.min.record.lock.duration.ms", integer(at_least=1000, at_most=30000), 15000,
    "Minimum of a group's `share.record.lock.duration.ms`.")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = _share.row(
    "group.share.max.record.lock.duration.ms", integer(at_least=30000, at_most=3600000), 60000,
    "Maximum of a group's `share.record.lock.duration.ms`.")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = _share.row(
    "group.share.partition.max.record.locks", integer(at_least=100, at_most=10000), 2000,
    "Maximum number of records of one partition that a share group has in flight, from the first that is not "
    "acknowledged.")
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = _share.row(
    "group.share.min.partition.max.record.locks", integer(at_least=100, at_most=2000), 100,
    "Minimum of a group's `share.partition.max.record.locks`.")
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = _share.row(
    "group.share.max.partition.max.record.locks", integer(at_least=2000, at_most=20000), 4000,
    "Maximum of a group's `share.partition.max.record.locks`.")
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = _share.row(
    "share.coordinator.state.topic.num.partitions", integer(at_least=1), 50,
    "Number of partitions of `__share_group_state`. Must not change once the topic exists.")
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = _share.row(
    "share.coordinator.state.topic.replication.factor", short(at_least=1), 3,
    "Replication factor of `__share_group_state`. With fewer brokers, their number.")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = _share.row("share.coordinator.state.topic.min.isr", short(at_least=1), 2,
    "`min.insync.replicas` of `__share_group_state`. With fewer replicas, their number.")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = _share.row(
    "share.coordinator.state.topic.segment.bytes", integer(at_least=1), 104857600,
    "Maximum size of a segment of `__share_group_state` in bytes.")
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS = _share.row(
    "share.coordinator.state.topic.prune.interval.ms", integer(at_least=1), 300000,
    "Interval in milliseconds at which records of `__share_group_state` that are no longer needed are deleted.")
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = _share.row(
    "share.coordinator.snapshot.update.records.per.snapshot", integer(at_least=0, at_most=500), 500,
    "Number of updates of a share-partition's state after which a snapshot of it is written.")
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = _share.row("share.coordinator.write.timeout.ms", integer(at_least=1), 5000,
    "Time in milliseconds that a change of a share-partition's state waits for its replicas before it fails.")
ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX = _share.row("errors.deadletterqueue.topic.name.prefix", string(), "dlq.",
    "Prefix of the names of topics that may get dead letters of share groups. Empty: every topic that has "
    "`errors.deadletterqueue.group.enable` may, except those that begin with two underscores.",
    UpdateMode.CLUSTER_WIDE)
ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE = _share.row(
    "errors.deadletterqueue.auto.create.topics.enable", boolean(), False,
    "Whether a group's dead-letter topic is created when it has the first dead letter.", UpdateMode.CLUSTER_WIDE)

_streams = Section("Streams groups", BROKER_SETTINGS)

GROUP_STREAMS_SESSION_TIMEOUT_MS = _streams.row("group.streams.session.timeout.ms", integer(at_least=1), 45000,
    "Time in milliseconds without a heartbeat after which a member of a streams group is removed.")
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS = _streams.row(
    "group.streams.min.session.timeout.ms", integer(at_least=1), 45000,
    "Minimum of a group's `streams.session.timeout.ms`.")
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS = _streams.row(
    "group.streams.max.session.timeout.ms", integer(at_least=1), 60000,
    "Maximum of a group's `streams.session.timeout.ms`.")
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS = _streams.row(
    "group.streams.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Interval in milliseconds at which members of streams groups send heartbeats. A member learns of new tasks with "
    "its next heartbeat.")
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS = _streams.row(
    "group.streams.min.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Minimum of a group's `streams.heartbeat.interval.ms`.")
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS = _streams.row(
    "group.streams.max.heartbeat.interval.ms", integer(at_least=1), 15000,
    "Maximum of a group's `streams.heartbeat.interval.ms`.")
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS = _streams.row(
    "group.streams.assignment.interval.ms", integer(at_least=0), 1000,
    "Time in milliseconds after an assignment of a streams group before the next one is computed. Changes in between "
    "begin group epochs and are assigned together, with the first heartbeat after it. 0: every change is assigned at "
    "once (KIP-1263).")
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS = _streams.row(
    "group.streams.min.assignment.interval.ms", integer(at_least=0), 0,
    "Minimum of a group's `streams.assignment.interval.ms`.")
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS = _streams.row(
    "group.streams.max.assignment.interval.ms", integer(at_least=0), 15000,
    "Maximum of a group's `streams.assignment.interval.ms`.")
GROUP_STREAMS_MAX_SIZE = _streams.row("group.streams.max.size", integer(at_least=1), MAX_INT32,
    "Maximum number of members of a streams group.")
GROUP_STREAMS_NUM_STANDBY_REPLICAS = _streams.row(
    "group.streams.num.standby.replicas", integer(at_least=0), 0,
    "Number of standby copies of each task with state. Each needs a process that does not run the task.")
GROUP_STREAMS_MAX_STANDBY_REPLICAS = _streams.row(
    "group.streams.max.standby.replicas", integer(at_least=0), 2,
    "Maximum of a group's `streams.num.standby.replicas`.")
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS = _streams.row(
    "group.streams.initial.rebalance.delay.ms", integer(at_least=0), 3000,
    "Time in milliseconds that the first assignment of an empty streams group waits for more members. 0 suits "
    "development.")

_offsets = Section("Committed offsets", BROKER_SETTINGS)

OFFSET_METADATA_MAX_BYTES = _offsets.row("offset.metadata.max.bytes", integer(at_least=0), 4096,
    "Maximum size in bytes of the metadata of a committed offset.")
OFFSETS_COMMIT_TIMEOUT_MS = _offsets.row("offsets.commit.timeout.ms", integer(at_least=1), 5000,
    "Time in milliseconds that an offset commit waits for its replicas before it fails.")
OFFSETS_RETENTION_MINUTES = _offsets.row("offsets.retention.minutes", integer(at_least=1), 10080,
    "Time in minutes after which committed offsets expire, unless a member subscribes to their topic. For a classic "
    "group without members it is counted from when the group became empty, in all other cases from the commit.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = _offsets.row("offsets.retention.check.interval.ms", long(at_least=1), 600000,
    "Interval in milliseconds at which expired offsets are removed.")
OFFSETS_TOPIC_NUM_PARTITIONS = _offsets.row("offsets.topic.num.partitions", integer(at_least=1), 50,
    "Number of partitions of `__consumer_offsets`. Must not change once the topic exists.")
OFFSETS_TOPIC_REPLICATION_FACTOR = _offsets.row("offsets.topic.replication.factor", short(at_least=1), 3,
    "Replication factor of `__consumer_offsets`. With fewer brokers, their number.")
OFFSETS_TOPIC_SEGMENT_BYTES = _offsets.row("offsets.topic.segment.bytes", integer(at_least=1), 104857600,
    "Maximum size of a segment of `__consumer_offsets` in bytes. Small, so that compaction keeps loading fast.")

_producers = Section("Producers", BROKER_SETTINGS)

PRODUCER_ID_EXPIRATION_MS = _producers.row("producer.id.expiration.ms", integer(at_least=1), 86400000,
    "Time in milliseconds without a batch after which a partition forgets the state of an idempotent producer.",
    UpdateMode.CLUSTER_WIDE)

_transactions = Section("Transactions", BROKER_SETTINGS)

TRANSACTIONAL_ID_EXPIRATION_MS = _transactions.row("transactional.id.expiration.ms", integer(at_least=1), 604800000,
    "Time in milliseconds without a transaction after which the coordinator forgets a transactional id.")
TRANSACTION_MAX_TIMEOUT_MS = _transactions.row("transaction.max.timeout.ms", integer(at_least=1), 900000,
    "Maximum `transaction.timeout.ms` in milliseconds that a producer may request. An open transaction holds "
    "read_committed consumers back for at most this time.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = _transactions.row("transaction.two.phase.commit.enable", boolean(), False,
    "Whether producers with the right TwoPhaseCommit may ask for transactions without a timeout, because another "
    "system decides whether they commit (KIP-939). An open transaction holds read_committed consumers back until "
    "then.")
TRANSACTION_ABORT_TIMED_OUT_CLEANUP_INTERVAL_MS = _transactions.row(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms", integer(at_least=1), 10000,
    "Interval in milliseconds at which transactions that exceed their timeout are aborted.")
TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS = _transactions.row(
    "transaction.remove.expired.transaction.cleanup.interval.ms", integer(at_least=1), 3600000,
    "Interval in milliseconds at which expired transactional ids are removed.")
TRANSACTION_STATE_LOG_NUM_PARTITIONS = _transactions.row("transaction.state.log.num.partitions", integer(at_least=1),
    50, "Number of partitions of `__transaction_state`. Must not change once the topic exists.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = _transactions.row(
    "transaction.state.log.replication.factor", short(at_least=1), 3,
    "Replication factor of `__transaction_state`. With fewer brokers, their number.")
TRANSACTION_STATE_LOG_MIN_ISR = _transactions.row("transaction.state.log.min.isr", integer(at_least=1), 2,
    "`min.insync.replicas` of `__transaction_state`. With fewer replicas, their number.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES = _transactions.row(
    "transaction.state.log.segment.bytes", integer(at_least=1), 104857600,
    "Maximum size of a segment of `__transaction_state` in bytes. Small, so that compaction keeps loading fast.")
TRANSACTION_PARTITION_VERIFICATION_ENABLE = _transactions.row(
    "transaction.partition.verification.enable", boolean(), True,
    "Whether the leader of a partition asks the transaction coordinator before it appends the first batch of a "
    "transaction. Without it a late batch can leave a transaction that nothing ends.", UpdateMode.CLUSTER_WIDE)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = _transactions.row(
    "add.partitions.to.txn.retry.backoff.ms", integer(at_least=1), 20,
    "Time in milliseconds after which a partition leader asks the transaction coordinator again, while that completes "
    "the producer's last transaction.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = _transactions.row(
    "add.partitions.to.txn.retry.backoff.max.ms", integer(at_least=0), 100,
    "Maximum time in milliseconds for which a partition leader asks again. Then the producer has to retry.")
