"""Intended differences, and cases in which Kafka's own response varies."""

import operator
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.clients.walks.steps import Step


class KnownWalkDifference(NamedTuple):
    """Differences of an API, and why they are intended.

    `api` is a pattern of the API's whole name. `where` is a pattern that matches a difference's
    line (`path Kafka …, we …`) from its start. `in_step` is a pattern that is searched for in the
    step's text. `numbers` must hold for Kafka's number and ours, which are the groups of `where`.
    """

    api: str
    where: str
    because: str
    in_step: str = ""
    numbers: Callable[[int, int], bool] | None = None

    def matches(self, step: Step, line: str) -> bool:
        found = re.match(self.where, line)
        if found is None or not re.fullmatch(self.api, step.api) or not re.search(self.in_step, str(step)):
            return False
        return self.numbers is None or self.numbers(*map(int, found.groups()))


KNOWN_DIFFERENCES: Final = (
    KnownWalkDifference(
        "create_topics", r".*\[min.insync.replicas\]", "Kafka's format sets it for the cluster, with ELR"
    ),
    KnownWalkDifference(
        "produce",
        r".*error_code Kafka 'corrupt_message', we '(unknown_topic_or_partition|topic_authorization_failed)'",
        "Kafka checks the bytes first",
    ),
    KnownWalkDifference(
        "produce",
        r".*error_code Kafka 'transactional_id_authorization_failed', we 'unknown_topic_(or_partition|id)'",
        "transactional batches without a transactional id: Kafka refuses the request before it looks for topics",
        in_step="transactional_id=None",
    ),
    KnownWalkDifference(
        "alter_configs",
        r".*Kafka 'invalid_config', we 'none'",
        "Kafka refuses to drop what its format had set for all brokers",
        in_step="'resource_type': 4, 'resource_name': ''",
    ),
    KnownWalkDifference(
        "list_offsets",
        r".*\.(timestamp|offset|leader_epoch) Kafka -1, we [0-9]",
        "a timestamp whose first segment has only deleted records: Kafka searches no further",
        in_step="'timestamp': (0|17)",
    ),
    KnownWalkDifference(
        "sync_group",
        r" Kafka 'no answer', we \{'error_code': 'unknown_member_id'",
        "a member removed while it waits for its assignment: Kafka never responds",
    ),
    KnownWalkDifference(
        "join_group",
        (
            r"\.(error_code Kafka 'unknown_server_error', we '(unknown_member_id|fenced_instance_id)'|member_id "
            "Kafka '', we '<)"
        ),
        "an instance with a dynamic member's id: Kafka fails with an internal exception",
    ),
    KnownWalkDifference(
        "fetch",
        r".*\.records\[[1-9][0-9]*\] Kafka 'nothing', we",
        "Kafka's response ends with a segment, Ottla's does not",
    ),
    KnownWalkDifference(
        "fetch",
        r".*\.records\[0\] Kafka 'nothing', we",
        "Kafka fills max_bytes with a truncated batch, Ottla with another partition's batch that fits",
        in_step=r"\bmax_bytes=[0-9]",
    ),
    KnownWalkDifference(
        "fetch",
        r".*\.records\[[0-9]+\] Kafka .*, we 'nothing'",
        "Kafka's read of a partition ends with its segment, Ottla's does not and leaves less room for others",
        in_step=r"\bmax_bytes=(?!1048576)[0-9].*'partition'.*'partition'",
    ),
    KnownWalkDifference(
        "fetch",
        r"\.waited Kafka True, we False",
        "a fetch does not wait while there are records after those that it returns",
    ),
    KnownWalkDifference(
        "fetch",
        r".*\.aborted_transactions Kafka None, we \[\]",
        "Kafka has null where a batch does not fit the limit of bytes, an empty list where nothing of it is left",
        in_step=r"(?=.*isolation_level=1).*max_bytes(=|': )(?!1048576)",
    ),
    KnownWalkDifference(
        "streams_group_heartbeat",
        r"\.(active|standby|warmup)_tasks Kafka None, we \{'count'",
        "a member that reports other tasks than it is assigned gets them again; Kafka sends only changes",
        in_step=r"active_tasks=(?!None)",
    ),
    KnownWalkDifference(
        "streams_group_heartbeat",
        r"\.endpoint_information_epoch Kafka ([0-9]+), we ([0-9]+)$",
        "a response that raises this epoch has the new one, Kafka's still has the former one",
        numbers=lambda theirs, ours: ours == theirs + 1,
    ),
    KnownWalkDifference(
        "streams_group_heartbeat",
        r"\.partitions_by_user_endpoint Kafka None, we \[",
        "Kafka forgets that the join of a group's first member has raised the epoch of the endpoints",
    ),
    KnownWalkDifference(
        "streams_group_describe",
        r".*_topics\[[^]]+\]\.partitions Kafka 0, we [1-9]",
        "Kafka forgets the sizes of internal topics that the join of a group's first member has computed",
    ),
    KnownWalkDifference(
        "describe_share_group_offsets",
        r".*\.(start_offset|lag) Kafka -1, we [0-9]",
        "Ottla stores the offset at which a group begins when it begins, Kafka with the first acknowledgement",
    ),
    KnownWalkDifference(
        "describe_share_group_offsets",
        r".*\.start_offset Kafka ([0-9]+), we ([0-9]+)$",
        "Kafka stores an acknowledgement with the start offset that the group had before it",
        numbers=operator.lt,
    ),
    KnownWalkDifference(
        "describe_share_group_offsets",
        r"\.groups\[[^]]+\]\.(error_code Kafka 'unknown_server_error', we 'none'"
        r"|topics\[[^]]+\] Kafka 'nothing', we .*)",
        "partition -1: Kafka fails with an internal exception for the whole group",
    ),
    KnownWalkDifference(
        "share_group_(heartbeat|describe)",
        r".*(?:group|assignment|member)_epoch Kafka ([0-9]+), we ([0-9]+)$",
        "in Ottla the initialization of partitions begins an epoch, in Kafka only the next heartbeat does",
        numbers=operator.lt,
    ),
    KnownWalkDifference(
        "share_(fetch|acknowledge)",
        r".*error_code Kafka ('unknown_topic_or_partition', we 'invalid_record_state'|3, we 121)",
        "a share-partition that nobody has fetched: Kafka does not load it for an acknowledgement",
    ),
    KnownWalkDifference(
        "share_fetch",
        r".*error_code Kafka 'unknown_server_error', we 'unknown_topic_or_partition'",
        "a share-partition that the group has not initialized: Kafka fails with an internal exception",
    ),
    KnownWalkDifference(
        "share_fetch",
        r".*(error_code Kafka 'none', we|Kafka 'nothing', we .*'error_code':) 'unknown_topic_or_partition'.*",
        "a share-partition whose offsets were deleted: Kafka's leader goes on as before until its next write",
    ),
    KnownWalkDifference("share_fetch", r"\.waited ", "Kafka loads a share-partition's state at its first fetch"),
    KnownWalkDifference(
        "streams_group_heartbeat",
        r"\.error_code Kafka 'unknown_server_error', we 'streams_invalid_topology'",
        "a copartition group of topics that the subtopology does not have: Kafka fails with an internal exception",
    ),
)
# A walk ends at such a difference, as nondeterministic.
NONDETERMINISTIC: Final = (
    # Which of several members gets a task is the assignor's choice. A task that changes from
    # standby to active at one member, or back, is assigned when the member reports that it has
    # given the task up; Kafka assigns it with the heartbeat after that.
    r"streams_group_heartbeat \.active_tasks Kafka \{'count': [0-9]+\}, we None",
    r"streams_group_(heartbeat|describe) .*\.(active|standby)_(tasks|partitions)\.count Kafka [0-9]+, we [0-9]+",
    # With an endpoint, and a topology that is not ready, Kafka fails with an internal exception.
    r"streams_group_heartbeat \.error_code Kafka 'unknown_server_error', we 'none'",
    # Which partitions a member gets is the assignor's choice; in consumer groups, only if
    # subscriptions differ.
    r"consumer_group_(heartbeat|describe) .*\.topic_partitions\.count Kafka [0-9]+, we [0-9]+",
    r"share_group_(heartbeat|describe) .*\.topic_partitions\.count Kafka [0-9]+, we [0-9]+",
    # Kafka's first fetch of a share-partition whose start was deleted returns nothing.
    r"share_fetch .*\.acquired_records\[0\] Kafka 'nothing', we",
    # A topic id that does not exist: Kafka fails with an internal exception, and does not count the
    # request in its session.
    r"share_fetch \.error_code Kafka 'unknown_server_error', we 'none'",
    r"join_group \.(leader|members)",  # after a leader left, Kafka chooses any other member
    r"join_group \.protocol_name Kafka '(range|sticky)', we '(range|sticky)'",  # tied votes: Kafka decides by hashes
)
