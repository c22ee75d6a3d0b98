"""At least one request of each API that requires a permission, except Envelope. The responses show
what a user may not do.

Names of resources in the requests of a user begin with the user's name. `USER.topic` exists,
`USER.absent` does not, and the group `USER.group` has a committed offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tests.clients.api_session import encode_values

BETWEEN_BROKERS: Final = frozenset(
    {
        "vote",
        "begin_quorum_epoch",
        "end_quorum_epoch",
        "alter_partition",
        "envelope",
        "fetch_snapshot",
        "broker_registration",
        "broker_heartbeat",
        "allocate_producer_ids",
        "assign_replicas_to_dirs",
        "update_raft_voter",
    }
)
"""APIs that Kafka serves only on its controller's listener."""
OTHER_CLUSTER: Final = "another-cluster"
METADATA_PARTITION: Final = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # types of config resources
UNKNOWN_ID: Final = UUID(int=7)


@dataclass(frozen=True)
class Names:
    """The resources in the requests of one user. `topic_id`: the id of `topic`, which differs
    between the brokers.
    """

    user: str
    topic: Any
    absent: Any
    group: Any
    topic_id: Any

    @classmethod
    def of_user(cls, user: str, topic_id: UUID) -> "Names":
        return cls(user, f"{user}.topic", f"{user}.absent", f"{user}.group", topic_id)

    @property
    def transactional_id(self) -> str:
        return f"{self.user}.transaction"

    def topics(self, **fields: Any) -> list[dict[str, Any]]:
        """The topic that exists and the one that does not, for requests by name or by id."""
        return [
            {"name": self.topic, "topic": self.topic, "topic_id": self.topic_id, **fields},
            {"name": self.absent, "topic": self.absent, "topic_id": UNKNOWN_ID, **fields},
        ]


Probe = tuple[str, str, dict[str, Any]]
"""API, case, and the request's fields in all versions."""
SINCE: Final = {
    ("offset_fetch", "all topics"): 2,
    ("metadata", "all topics"): 1,
    ("metadata", "two ids"): 12,
    ("create_delegation_token", "for another"): 3,
}
"""First version of an API that can express the case. Every version can express the other cases."""


def probes(names: Names) -> Iterator[Probe]:
    yield from record_probes(names)
    yield from group_probes(names)
    yield from transaction_probes(names)
    yield from share_group_probes(names)
    yield from describe_probes(names)
    yield from config_probes(names)
    yield from cluster_probes(names)
    yield from broker_probes()
    yield from topic_probes(names)


def record_probes(names: Names) -> Iterator[Probe]:
    data = names.topics(partition_data=[{"index": 0, "records": encode_values(b"a")}])
    yield "produce", "two topics", {"acks": 1, "timeout": 5000, "topic_data": data}
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}]
    for case, replica in (("a consumer", -1), ("a replica", 5)):
        fields = {"max_wait": 0, "max_bytes": 10_000, "session_epoch": -1, "rack_id": "", "min_bytes": 0}
        state = {"replica_id": replica, "replica_epoch": -1}
        yield (
            "fetch",
            case,
            {**fields, "replica_id": replica, "replica_state": state, "topics": names.topics(partitions=wanted)},
        )
    offsets = names.topics(partitions=[{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}])
    yield "list_offsets", "two topics", {"replica_id": -1, "topics": offsets}
    epochs = names.topics(partitions=[{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}])
    for case, replica in (("a consumer", -1), ("a replica", 5)):
        yield "offset_for_leader_epoch", case, {"replica_id": replica, "topics": epochs}
    yield "init_producer_id", "no transaction", {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": 1000}


def group_probes(names: Names) -> Iterator[Probe]:
    commits = [{"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}]
    member = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
    yield "offset_commit", "two topics", {"group_id": names.group, **member, "topics": names.topics(partitions=commits)}
    wanted = names.topics(partition_indexes=[0])
    group = {"group_id": names.group, "member_epoch": -1}
    for case, topics in (("two topics", wanted), ("all topics", None)):
        yield "offset_fetch", case, {**group, "topics": topics, "groups": [{**group, "topics": topics}]}
    for case, kind in (("a group", 0), ("an unknown type", 7)):
        yield "find_coordinator", case, {"key": names.group, "key_type": kind, "coordinator_keys": [names.group]}
    protocols = [{"name": "range", "metadata": b""}]
    known = {"group_id": names.group, "member_id": "nobody", "generation_id": 1}
    timeouts = {"session_timeout": 10_000, "rebalance_timeout": 10_000}
    yield "join_group", "an unknown member", {**known, **timeouts, "protocol_type": "consumer", "protocols": protocols}
    yield "heartbeat", "an unknown member", known
    yield "sync_group", "an unknown member", {**known, "protocol_type": "consumer", "protocol_name": "range"}
    yield "leave_group", "an unknown member", {**known, "members": [{"member_id": "nobody"}]}
    yield "describe_groups", "a group", {"groups": [names.group], "include_authorized_operations": True}
    yield "list_groups", "all", {}
    subscribed = {"subscribed_topic_names": [names.topic], "rebalance_timeout": 10_000, "topic_partitions": []}
    leaves = {"group_id": names.group, "member_id": "nobody", "member_epoch": -1}
    yield "consumer_group_heartbeat", "an unknown member leaves", {**leaves, **subscribed}
    yield "consumer_group_describe", "a group", {"group_ids": [names.group], "include_authorized_operations": True}
    streams = {"group_id": names.group, "member_id": "nobody", "member_epoch": -1, "endpoint_information_epoch": -1}
    yield "streams_group_heartbeat", "an unknown member leaves", streams
    source = {"subtopology_id": "0", "source_topics": [names.topic], "state_changelog_topics": []}
    for case, more in (
        ("a topic", {}),
        ("a topic that does not exist", {"source_topics": [names.absent]}),
        (
            "an internal topic",
            {"state_changelog_topics": [{"name": f"{names.user}.changelog", "replication_factor": 1}]},
        ),
    ):
        joins = {"group_id": f"{names.group}.{case.replace(' ', '-')}", "member_id": "A" * 22, "member_epoch": 0}
        parts = {"process_id": "p", "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "client_tags": []}
        topology = {"epoch": 0, "subtopologies": [{**source, **more}]}
        yield (
            "streams_group_heartbeat",
            case,
            {**joins, **parts, "rebalance_timeout": 10_000, "topology": topology, "endpoint_information_epoch": -1},
        )
        yield "streams_group_describe", case, {"group_ids": [joins["group_id"]], "include_authorized_operations": True}
    yield "streams_group_describe", "a group", {"group_ids": [names.group], "include_authorized_operations": True}
    deleted = names.topics(partitions=[{"partition_index": 0}])
    yield "offset_delete", "two topics", {"group_id": names.group, "topics": deleted}
    yield "delete_groups", "two groups", {"groups_names": [names.group, f"{names.user}.nothing"]}


def transaction_probes(names: Names) -> Iterator[Probe]:
    """Requests about a transactional id without a producer."""
    name = names.transactional_id
    producer = {"transactional_id": name, "producer_id": 7, "producer_epoch": 0}
    yield "find_coordinator", "a transaction", {"key": name, "key_type": 1, "coordinator_keys": [name]}
    yield "add_offsets_to_txn", "an unknown producer", {**producer, "group_id": names.group}
    named = names.topics(partitions=[0])
    old = {f"v3_and_below_{field}": value for field, value in {**producer, "topics": named}.items()}
    both = {**producer, **old, "topics": named, "transactions": [{**producer, "verify_only": False, "topics": named}]}
    yield "add_partitions_to_txn", "an unknown producer", both
    commits = [{"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}]
    offsets = {
        "group_id": names.group,
        "generation_id": -1,
        "member_id": "",
        "topics": names.topics(partitions=commits),
    }
    yield "txn_offset_commit", "an unknown producer", {**producer, **offsets}
    yield "end_txn", "an unknown producer", {**producer, "committed": False}
    yield "describe_transactions", "one", {"transactional_ids": [name]}
    yield "list_transactions", "all", {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    yield "write_txn_markers", "nothing", {"markers": []}


def share_group_probes(names: Names) -> Iterator[Probe]:
    """Requests about a group that is not a share group or does not exist, and about
    share-partitions that were not initialized.
    """
    member = {"group_id": names.group, "member_id": "A" * 22, "share_session_epoch": 3}
    yield "share_group_heartbeat", "an unknown member leaves", {**member, "member_epoch": -1}
    heartbeat = {"group_id": f"{names.group}.share", "member_id": "a", "member_epoch": 0}
    yield "share_group_heartbeat", "a topic", {**heartbeat, "member_epoch": 5, "subscribed_topic_names": [names.topic]}
    yield "share_group_describe", "a group", {"group_ids": [names.group], "include_authorized_operations": True}
    yield "share_fetch", "without a session", {**member, "max_wait": 0, "max_bytes": 1000, "topics": []}
    yield "share_acknowledge", "without a session", {**member, "topics": []}
    partition = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": []}
    states = {"group_id": names.group, "topics": [{"topic_id": UNKNOWN_ID, "partitions": [partition]}]}
    for api in ("read", "write", "delete"):
        yield f"{api}_share_group_state", "an unknown one", states
    yield "read_share_group_state_summary", "an unknown one", states
    yield "initialize_share_group_state", "nothing", {"group_id": names.group, "topics": []}
    named = [{"topic_name": names.topic, "partitions": [0]}]
    yield "describe_share_group_offsets", "a topic", {"groups": [{"group_id": names.group, "topics": named}]}
    altered = [{"topic_name": names.topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    yield "alter_share_group_offsets", "a topic", {"group_id": names.group, "topics": altered}
    yield "delete_share_group_offsets", "a topic", {"group_id": names.group, "topics": [{"topic_name": names.topic}]}


def describe_probes(names: Names) -> Iterator[Probe]:
    with_operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    yield "metadata", "all topics", {"topics": None, **with_operations}
    named = [{"name": names.topic}, {"name": names.absent}]
    yield "metadata", "two topics", {"topics": named, **with_operations}
    yield "metadata", "two ids", {"topics": [{"topic_id": names.topic_id}, {"topic_id": UNKNOWN_ID}], **with_operations}
    yield "describe_cluster", "with operations", {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    yield "describe_topic_partitions", "all topics", {"topics": [], "response_partition_limit": 2000}
    yield "describe_topic_partitions", "two topics", {"topics": named, "response_partition_limit": 2000}
    yield "describe_producers", "two topics", {"topics": names.topics(partition_indexes=[0])}
    yield "describe_log_dirs", "one topic", {"topics": [{"topic": names.topic, "partitions": [0]}]}
    yield "describe_quorum", "the metadata log", {"topics": METADATA_PARTITION}
    yield "list_partition_reassignments", "all", {"timeout": 5000, "topics": None}
    any_acl = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    yield "describe_acls", "all", {**any_acl, "principal_filter": f"User:{names.user}"}
    yield "describe_client_quotas", "all", {"components": [{"entity_type": "user", "match_type": 2, "match": None}]}
    yield "describe_user_scram_credentials", "one", {"users": [{"name": names.user}]}
    yield "describe_delegation_token", "all", {"owners": None}
    yield "list_config_resources", "topics", {"resource_types": [TOPIC]}
    yield "list_config_resources", "client metrics", {"resource_types": [CLIENT_METRICS]}


def config_probes(names: Names) -> Iterator[Probe]:
    resources = {
        "a topic": (TOPIC, names.topic),
        "a topic that does not exist": (TOPIC, names.absent),
        "a broker": (BROKER, "1"),
        "all brokers": (BROKER, ""),
        "loggers": (BROKER_LOGGER, "1"),
        "an unknown type": (99, "x"),
    }
    for case, (kind, name) in resources.items():
        resource = {"resource_type": kind, "resource_name": name}
        described = {**resource, "configuration_keys": ["retention.ms"]}
        yield "describe_configs", case, {"resources": [described]}
        set_nothing: dict[str, Any] = {"resources": [{**resource, "configs": []}], "validate_only": True}
        yield "alter_configs", case, set_nothing
        yield "incremental_alter_configs", case, set_nothing


def cluster_probes(names: Names) -> Iterator[Probe]:
    yield (
        "alter_replica_log_dirs",
        "a topic",
        {"dirs": [{"path": "/no/such", "topics": [{"name": names.topic, "partitions": [0]}]}]},
    )
    acl = {"resource_type": 2, "resource_name": f"{names.user}.other", "resource_pattern_type": 3}
    granted = {"principal": "User:nobody", "host": "*", "operation": 3, "permission_type": 3}
    yield "create_acls", "one", {"creations": [{**acl, **granted}]}
    named = {"resource_type_filter": 2, "resource_name_filter": f"{names.user}.other", "pattern_type_filter": 3}
    yield "delete_acls", "one", {"filters": [{**named, "operation": 1, "permission_type": 1}]}
    yield (
        "create_delegation_token",
        "for another",
        {"owner_principal_type": "User", "owner_principal_name": "owner", "max_lifetime": -1},
    )
    yield "renew_delegation_token", "an unknown token", {"hmac": b"no", "renew_period": 1000}
    yield "expire_delegation_token", "an unknown token", {"hmac": b"no", "expiry_time_period": 1000}
    yield "elect_leaders", "one", {"topic_partitions": [{"topic": names.topic, "partitions": [0]}], "timeout": 5000}
    moved = [{"name": names.topic, "partitions": [{"partition_index": 0, "replicas": None}]}]
    yield "alter_partition_reassignments", "nothing to cancel", {"timeout": 5000, "topics": moved}
    quota = {
        "entity": [{"entity_type": "user", "entity_name": names.user}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9}],
    }
    yield "alter_client_quotas", "one, validated", {"entries": [quota], "validate_only": True}
    yield (
        "alter_user_scram_credentials",
        "a credential that does not exist",
        {"deletions": [{"name": names.user, "mechanism": 1}]},
    )
    yield "update_features", "nothing", {"timeout": 1000, "feature_updates": [], "validate_only": True}
    yield "unregister_broker", "an unknown broker", {"broker_id": 77}
    voter = {"cluster_id": OTHER_CLUSTER, "voter_id": 9, "voter_directory_id": UNKNOWN_ID, "timeout": 1000}
    yield "add_raft_voter", "of another cluster", {**voter, "listeners": [{"name": "A", "host": "h", "port": 1}]}
    yield "remove_raft_voter", "of another cluster", voter


def broker_probes() -> Iterator[Probe]:
    """Requests between brokers, sent by a client. Only whether they are refused is compared."""
    cluster = {"cluster_id": OTHER_CLUSTER, "topics": METADATA_PARTITION}
    for api in ("vote", "begin_quorum_epoch", "end_quorum_epoch"):
        yield api, "of another cluster", cluster
    yield "update_raft_voter", "of another cluster", {**cluster, "voter_directory_id": UNKNOWN_ID}
    yield "fetch_snapshot", "of another cluster", {"cluster_id": OTHER_CLUSTER, "topics": []}
    yield (
        "broker_registration",
        "of another cluster",
        {"broker_id": 77, "cluster_id": OTHER_CLUSTER, "incarnation_id": UNKNOWN_ID},
    )
    broker = {"broker_id": 77, "broker_epoch": 1}
    for api in ("alter_partition", "broker_heartbeat", "allocate_producer_ids", "assign_replicas_to_dirs"):
        yield api, "of an unknown broker", broker


def topic_probes(names: Names) -> Iterator[Probe]:
    """Requests that change topics; sent last."""
    new = {"num_partitions": 1, "replication_factor": 1}
    created = [{"name": f"{names.user}.new", **new}, {"name": names.topic, **new}]
    yield "create_topics", "validated", {"topics": created, "timeout": 5000, "validate_only": True}
    wanted = [{"name": names.topic, "count": 2}, {"name": names.absent, "count": 2}]
    yield "create_partitions", "validated", {"topics": wanted, "timeout": 5000, "validate_only": True}
    records = names.topics(partitions=[{"partition_index": 0, "offset": 0}])
    yield "delete_records", "two topics", {"topics": records, "timeout": 5000}
    by_id = [{"topic_id": names.topic_id}, {"topic_id": UNKNOWN_ID}]
    yield (
        "delete_topics",
        "by name",
        {"topic_names": [names.absent], "topics": [{"name": names.absent}], "timeout": 5000},
    )
    yield "delete_topics", "by id", {"topics": by_id, "topic_names": [names.topic], "timeout": 5000}
