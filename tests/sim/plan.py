"""The parameters that a seed chooses for a run: number of brokers, settings, guarantees,
duration.
"""

from dataclasses import dataclass, field
from random import Random

SIZES = (1, 3, 3, 3, 5)  # numbers of brokers
FAULTS_FOR_S = {1: (12.0, 40.0), 2: (10.0, 25.0), 3: (10.0, 25.0), 4: (8.0, 20.0), 5: (8.0, 15.0)}
SELECTORS = ("LeaderSelector", "RackAwareReplicaSelector")
SYNC_S = (0.004, 0.02, 0.1)
QUORUM_SIZES = (2, 3, 3, 3, 4, 5, 5)
QUORUM_FAULTS_FOR_S = (5.0, 15.0)
OBSERVER_PLAN_SIZES = (7, 8, 9, 11)
LOCK_S = 2.0  # of a record of the share group
DEAD_LETTERS_ONE_IN = 2  # one seed with a share group in this many has a dead-letter topic
TRANSACTION_SIZES = (1, 3, 3, 3, 3, 5)
TRANSACTION_FAULTS_FOR_S = (8.0, 18.0)
LATE_MARKER, LATE_BATCH, NEW_MARKER_LOST = "late marker", "late batch", "leader killed with a new marker"
# Remainder of a seed with transactions → the fault that happens more often than any other.
FREQUENT_FAULTS = {0: LATE_MARKER, 4: LATE_MARKER, 3: NEW_MARKER_LOST, 7: LATE_BATCH}
FREQUENT_FAULTS_PERIOD = 8


@dataclass
class Plan:
    """`replicas` and `min_insync_replicas` are those of every topic.

    `syncs_every_message`: log.flush.interval.messages=1, the default of every topic's
    flush.messages. `loses_records`: power losses are unlimited, and records that they lose are no
    violation. `only_metadata`: no records are produced, and faults are those that matter to the
    metadata log. `has_observers`: a plan of `of_observers`; fetches that voters serve to observers
    are counted. `changes_access`: ACLs, credentials and quotas change. `is_transactional`:
    transactional producers and workers run. `frequent_fault`: the fault of transactions that
    happens more often than any other; empty: none. `has_share_group`: members of a share group run;
    with `has_dead_letters` the group has a dead-letter topic. `has_streams_group`: threads of a
    Kafka Streams application come and go.
    """

    seed: int
    brokers: int = 1
    replicas: int = 1
    min_insync_replicas: int = 1
    settings: dict[str, str] = field(default_factory=dict)
    syncs_every_message: bool = False
    loses_records: bool = False
    only_metadata: bool = False
    has_observers: bool = False
    changes_access: bool = False
    is_transactional: bool = False
    frequent_fault: str = ""
    has_share_group: bool = False
    has_dead_letters: bool = False
    has_streams_group: bool = False
    max_deliveries: int = 10  # of a record of the share group
    voter_loss_timeout_s: float = 60.0  # a constant of the broker, shortened in short runs
    leader_fetch_interval_s: float = 10.0  # another constant of the broker, as are the next two
    voter_retry_s: float = 30.0
    leader_only_s: float = 30.0
    partitions: int = 1
    faults_for_s: float = 20.0
    sync_s: float = 0.004  # maximum duration of one fsync

    @classmethod
    def of_metadata(cls, seed: int, brokers: int | None) -> "Plan":
        """A plan with `only_metadata`. `brokers` None: the seed chooses."""
        random = Random(seed ^ 0x5EED)
        plan = cls.of(seed, random.choice(QUORUM_SIZES) if brokers is None else brokers)
        plan.only_metadata = True
        plan.partitions = 1
        plan.voter_loss_timeout_s = random.choice((4.0, 15.0, 60.0))
        plan.faults_for_s = random.uniform(*QUORUM_FAULTS_FOR_S)
        plan.settings["metadata.log.max.record.bytes.between.snapshots"] = str(random.choice((2_000, 1 << 20)))
        return plan

    @classmethod
    def of_observers(cls, seed: int, brokers: int | None) -> "Plan":
        """A plan with `only_metadata` and `has_observers`: observers other than the two next voters
        copy the metadata log from a voter. `brokers` None: the seed chooses."""
        random = Random(seed ^ 0x0B5E)
        plan = cls.of_metadata(seed, random.choice(OBSERVER_PLAN_SIZES) if brokers is None else brokers)
        plan.has_observers = True
        plan.leader_fetch_interval_s = random.choice((0.5, 2.0, 10.0))
        plan.voter_retry_s = random.choice((0.5, 2.0, 10.0))
        plan.leader_only_s = random.choice((0.5, 2.0, 10.0))
        return plan

    @classmethod
    def of_access(cls, seed: int, brokers: int | None) -> "Plan":
        """A plan with `only_metadata` and `changes_access`. `brokers` None: the seed chooses."""
        plan = cls.of_metadata(seed, brokers)
        plan.changes_access = True
        plan.settings |= {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
        return plan

    @classmethod
    def of_transactions(cls, seed: int, brokers: int | None) -> "Plan":
        """A plan with `is_transactional`. `brokers` None: the seed chooses."""
        random = Random(seed ^ 0x7A05)
        plan = cls.of(seed, random.choice(TRANSACTION_SIZES) if brokers is None else brokers)
        plan.is_transactional = True
        plan.frequent_fault = FREQUENT_FAULTS.get(seed % FREQUENT_FAULTS_PERIOD, "") if plan.brokers > 1 else ""
        plan.faults_for_s = random.uniform(*TRANSACTION_FAULTS_FOR_S)
        plan.settings |= {
            "transaction.state.log.num.partitions": str(random.choice((1, 2, 3))),
            "transaction.state.log.replication.factor": str(plan.replicas),
            "transaction.state.log.min.isr": str(plan.min_insync_replicas),
            "transaction.state.log.segment.bytes": str(random.choice((4 << 10, 1 << 20))),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(random.choice((500, 2_000))),
        }
        return plan

    @classmethod
    def of_shares(cls, seed: int, brokers: int | None) -> "Plan":
        """A plan with `has_share_group`. `brokers` None: the seed chooses."""
        random = Random(seed ^ 0x54A2E)
        plan = cls.of(seed, random.choice(TRANSACTION_SIZES) if brokers is None else brokers)
        plan.has_share_group = True
        plan.has_dead_letters = seed % DEAD_LETTERS_ONE_IN == 0
        if plan.has_dead_letters:
            plan.max_deliveries = 4
        plan.faults_for_s = random.uniform(*TRANSACTION_FAULTS_FOR_S)
        plan.settings |= {
            "share.coordinator.state.topic.num.partitions": str(random.choice((1, 2, 3))),
            "share.coordinator.state.topic.replication.factor": str(plan.replicas),
            "share.coordinator.state.topic.min.isr": str(plan.min_insync_replicas),
            "share.coordinator.state.topic.segment.bytes": str(random.choice((4 << 10, 1 << 20))),
            "share.coordinator.snapshot.update.records.per.snapshot": str(random.choice((2, 20, 500))),
            "group.share.session.timeout.ms": "3000",
            "group.share.min.session.timeout.ms": "1000",
            "group.share.record.lock.duration.ms": str(round(LOCK_S * 1000)),
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.delivery.count.limit": str(plan.max_deliveries),
            "group.share.partition.max.record.locks": str(random.choice((100, 2_000))),
            "errors.deadletterqueue.auto.create.topics.enable": str(plan.has_dead_letters).lower(),
        }
        return plan

    @classmethod
    def of_streams(cls, seed: int, brokers: int | None) -> "Plan":
        """A plan with `has_streams_group`. `brokers` None: the seed chooses."""
        random = Random(seed ^ 0x57EA)
        plan = cls.of(seed, random.choice(TRANSACTION_SIZES) if brokers is None else brokers)
        plan.has_streams_group = True
        plan.partitions = random.choice((2, 3, 4, 6))
        plan.faults_for_s = random.uniform(*TRANSACTION_FAULTS_FOR_S)
        return plan

    @classmethod
    def of(cls, seed: int, brokers: int | None) -> "Plan":
        """`brokers` None: the seed chooses."""
        random = Random(seed)
        synced = bool(random.randrange(2))
        size = random.choice(SIZES)
        plan = cls(seed, size if brokers is None else brokers, syncs_every_message=synced)
        plan.replicas = min(plan.brokers, random.choice((3, 3, 5)))
        plan.min_insync_replicas = {
            3: random.choice((1, 2, 2, 2)),
            4: 2,
            5: random.choice((2, 3)),
        }.get(plan.replicas, 1)
        plan.partitions = random.choice((1, 2, 3))
        plan.faults_for_s = random.uniform(*FAULTS_FOR_S[min(plan.brokers, max(FAULTS_FOR_S))])
        plan.sync_s = random.choice(SYNC_S)
        plan.settings = {
            "log.segment.bytes": str(random.choice((4 << 10, 32 << 10, 1 << 20))),
            "log.index.interval.bytes": str(random.choice((256, 4096))),
            "offsets.topic.num.partitions": str(random.choice((1, 2) if plan.brokers > 1 else (1, 3))),
            "offsets.topic.segment.bytes": str(random.choice((4 << 10, 1 << 20))),
            "log.cleaner.backoff.ms": str(random.choice((1_000, 15_000))),
            "log.flush.offset.checkpoint.interval.ms": str(random.choice((2_000, 60_000))),
            "replica.high.watermark.checkpoint.interval.ms": str(random.choice((1_000, 5_000))),
            "group.initial.rebalance.delay.ms": str(random.choice((0, 500))),
            "group.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "3000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.streams.session.timeout.ms": "3000",
            "group.streams.min.session.timeout.ms": "1000",
            "group.streams.num.standby.replicas": "1",
            "group.streams.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": str(plan.replicas),
            "default.replication.factor": str(plan.replicas),
            "min.insync.replicas": str(plan.min_insync_replicas),
            "auto.create.topics.enable": "false",
        }
        if synced:
            plan.settings["log.flush.interval.messages"] = "1"
        if plan.brokers > 1:
            plan.settings |= _cluster_settings(random)
        interval_ms = str(random.choice((0, 300, 1_000)))
        plan.settings["group.consumer.assignment.interval.ms"] = interval_ms
        plan.settings["group.streams.assignment.interval.ms"] = interval_ms
        return plan


def _cluster_settings(random: Random) -> dict[str, str]:
    """Settings that matter only with several brokers."""
    session_ms = random.choice((1_000, 3_000))
    return {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // 6),
        "replica.lag.time.max.ms": str(random.choice((1_000, 4_000))),
        "replica.fetch.wait.max.ms": str(random.choice((200, 500))),
        "replica.fetch.backoff.ms": str(random.choice((50, 500))),
        "leader.imbalance.check.interval.seconds": str(random.choice((3, 300))),
        "controller.quorum.voter.count": str(random.choice((3, 3, 5))),
        "controller.quorum.fetch.timeout.ms": str(random.choice((1_000, 2_000))),
        "controller.quorum.election.timeout.ms": str(random.choice((500, 1_000))),
        "controller.quorum.election.backoff.max.ms": str(random.choice((200, 1_000))),
        "replica.selector.class": "org.apache.kafka.common.replica." + random.choice(SELECTORS),
    }
