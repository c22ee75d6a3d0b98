"""The end of a run with mirrors: waits until both clusters have settled, then checks the
records.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.sim.appended_topic_checks import check_appended_once_in_order, missing_records
from tests.sim.checks import violations
from tests.sim.client import Workload
from tests.sim.cluster_clients import TOPIC
from tests.sim.cluster_state import newest_image, unhealthy_partitions
from tests.sim.history import History, TopicPartition
from tests.sim.mirror_checks import (
    check_copies_are_logs_of_source,
    check_copies_equal_source,
    check_own_records,
    check_records_are_kept_or_saved,
    leader_replicas,
    read_contents,
    saved_records,
    unfinished_copies,
    without_deleted_records,
)
from tests.sim.mirror_setup import FORWARD_MIRROR, REVERSE_MIRROR, MirrorSetup
from tests.sim.mirrored_credentials import copied_users, unsettled_credentials
from tests.sim.replica_checks import check_metadata_are_equal, check_replicas_are_equal, unsettled_replicas
from tests.sim.simulation import SimulationDriver

CONVERGES_WITHIN_S = 120.0


class MirrorFinalChecks:
    def __init__(self, setup: MirrorSetup, driver: SimulationDriver) -> None:
        self._setup = setup
        self._driver = driver

    async def wait_for_convergence(self) -> list[str]:
        """Waits until both clusters are healthy, producers make progress, and copies are complete
        or have stopped. Returns what is still missing after CONVERGES_WITHIN_S.
        """
        acks = [
            (workload.history, name, workload.history.ack_counts[name])
            for workload in self._writable_workloads()
            for name in dict.fromkeys(workload.history.sent.values())
            if name.startswith("producer" if workload is self._setup.at_source else "local")
        ]
        source_ends = {tp: one.log.high_watermark for tp, one in leader_replicas(self._setup.source).items()}

        def missing() -> list[str]:
            return [
                *(
                    f"{name} gets no acknowledgement"
                    for history, name, count in acks
                    if history.ack_counts[name] <= count
                ),
                *self._unhealthy(),
                *self._lagging_copies(source_ends),
            ]

        return await self._wait_until_empty(missing, "no convergence")

    def _writable_workloads(self) -> list[Workload]:
        """Workloads of clusters that accept producers at the end."""
        found = [] if self._setup.plan.fails_back else [self._setup.at_source]
        return found + ([self._setup.at_target] if self._setup.plan.fails_over or self._setup.plan.appended else [])

    def _unhealthy(self) -> list[str]:
        found: list[str] = []
        for cluster in (self._setup.source, self._setup.target):
            image = newest_image(cluster)
            found += [f"{broker.host} is not serving" for broker in cluster if not broker.is_serving]
            found += [f"no broker of the {cluster.host_prefix} runs"] if image is None else unhealthy_partitions(image)
        return found

    def _lagging_copies(self, source_ends: Mapping[TopicPartition, int]) -> list[str]:
        """Describes copies that lack records from before the end of the faults and have not stopped
        for good. Empty in runs with a failover or with appended offsets.
        """
        if self._setup.plan.fails_over or self._setup.plan.appended:
            return []
        found = {copy.topic_partition: copy for copy in self._setup.copies()}
        return [
            f"the copy of {tp} has not reached {end}"
            for tp, end in source_ends.items()
            if tp[0] == TOPIC
            and ((copy := found.get(tp)) is None or (copy.leader is not None and copy.leader.log.end < end))
            and not (copy is not None and copy.record.stopped and not self._setup.plan.resyncs)
        ]

    async def _wait_until_empty(self, missing: Callable[[], list[str]], failure: str) -> list[str]:
        return await self._driver.wait_until_empty(
            missing,
            CONVERGES_WITHIN_S,
            failure,
            give_up=lambda: bool(self._setup.violations() or self._setup.trace.problems),
            clusters=(self._setup.source, self._setup.target),
        )

    def _unsettled(self) -> list[str]:
        """Descriptions of partitions and credentials that have not settled or are in a wrong
        state.
        """
        now_s, resyncs = self._setup.loop.time(), self._setup.plan.resyncs
        found = [*unsettled_replicas(self._setup.source), *unsettled_replicas(self._setup.target), *self._unhealthy()]
        if self._setup.plan.appended:
            if not self._setup.plan.fails_over:
                found += missing_records(
                    self._setup.source,
                    self._setup.appended_partitions(),
                    may_stop=self._setup.plan.loses_records and not resyncs,
                )
            else:
                found += [
                    f"{one.topic_partition} is {one.status}"
                    for one in self._setup.appended_partitions()
                    if one.status is None or one.status.state != "FailedOver"
                ]
        elif not self._setup.plan.fails_over:
            found += unfinished_copies(
                self._setup.source,
                self._setup.target,
                FORWARD_MIRROR,
                now_s,
                may_stop=not resyncs,
                loses_records=self._setup.plan.loses_records,
            )
        else:
            found += [
                f"{copy.topic_partition} is {copy.status}"
                for copy in self._setup.copies()
                if copy.status is None or copy.status.state != "FailedOver"
            ]
        if self._setup.plan.copies_users:
            at, active = (self._setup.source, self._setup.target, FORWARD_MIRROR), not self._setup.plan.fails_over
            found += unsettled_credentials(*at, is_active=active)
        if self._setup.plan.fails_back:
            found += unfinished_copies(self._setup.target, self._setup.source, REVERSE_MIRROR, now_s, may_stop=False)
            failed_back = {copy.topic_partition for copy in self._setup.failed_back_copies()}
            found += [f"{tp} has not failed back" for tp in self._setup.partitions if tp not in failed_back]
        return found

    def _count_outcomes(self) -> None:
        """Adds the outcomes of this run to its counts."""
        found = [
            *("partition appended to" for _ in self._setup.appended_partitions()),
            *("partition copied" for copy in self._setup.copies() if not copy.topic.failed_over),
            *("partition failed over" for copy in self._setup.copies() if copy.topic.failed_over),
            *("partition stopped" for copy in self._setup.copies() if copy.record.stopped),
            *("credential copied" for _ in copied_users(self._setup.target, FORWARD_MIRROR)),
            *("partition failed back" for _ in self._setup.failed_back_copies()),
            *(["run with saved records"] if saved_records(self._setup.source) else []),
        ]
        for what in found:
            self._setup.counts[what] = self._setup.counts.get(what, 0) + 1

    async def check(self) -> list[str]:
        found = await self._wait_until_empty(self._unsettled, "not settled")
        self._count_outcomes()
        now_s, plan = self._setup.loop.time(), self._setup.plan
        for cluster in (self._setup.source, self._setup.target):
            found += [
                *check_replicas_are_equal(cluster, trimmed=self._setup.plan.deletes_records),
                *check_metadata_are_equal(cluster),
            ]
        found += check_copies_are_logs_of_source(self._setup.target, FORWARD_MIRROR, self._setup.log_history, now_s)
        source_keeps_records = not (plan.loses_records or plan.fails_back)
        found += check_copies_equal_source(
            self._setup.source, self._setup.target, FORWARD_MIRROR, now_s, from_source=source_keeps_records
        )
        found += check_copies_equal_source(self._setup.target, self._setup.source, REVERSE_MIRROR, now_s)
        found += check_own_records(self._setup.at_target.history, self._setup.target, FORWARD_MIRROR, now_s)
        contents, topics, starts = read_contents(self._setup.target)
        found += violations(self._merged_history(starts), contents, topics)
        contents, topics, starts = read_contents(self._setup.source)
        found += check_appended_once_in_order(
            contents, starts, self._setup.appended_partitions(), keeps_records=not plan.loses_records
        )
        if plan.fails_back:
            history = replace(
                self._setup.at_source.history,
                acks=[ack for ack in self._setup.at_source.history.acks if ack.topic_partition[0] == TOPIC],
            )
            if not plan.loses_records:
                history = without_deleted_records(history, starts)
                found += check_records_are_kept_or_saved(history, contents, saved_records(self._setup.source))
        elif not plan.loses_records:
            found += violations(without_deleted_records(self._setup.at_source.history, starts), contents, topics)
        return found

    def _merged_history(self, starts: Mapping[TopicPartition, int]) -> History:
        """The target's history, with what its groups read at the source before they moved."""
        history = without_deleted_records(self._setup.at_target.history, starts)
        for group in history.consumed:
            for tp, records in self._setup.at_source.history.consumed.get(group, {}).items():
                own = history.consumed[group].get(tp, {})
                ends = [copy.record.end for copy in self._setup.copies() if copy.topic_partition == tp]
                history.consumed[group][tp] = {at: value for at, value in records.items() if at < ends[0]} | own
        if self._setup.plan.loses_records:
            self._drop_deleted_records(history)
        return history

    def _drop_deleted_records(self, history: History) -> None:
        """Drops reads of deleted records at whose offsets a source that lost records has other
        records now.

        Reads of groups that commit are kept.
        """
        deleted, committing_groups = (
            self._setup.at_source.history.deletion_requests,
            {group for group, _ in history.committed_offsets},
        )
        for group in history.consumed.keys() - committing_groups:
            for tp, records in history.consumed[group].items():
                kept = {at: value for at, value in records.items() if at >= deleted.get(tp, 0)}
                history.consumed[group][tp] = kept
