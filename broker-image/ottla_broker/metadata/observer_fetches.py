"""A voter that follows the leader serves committed records of the metadata log to observers.

The leader alone decides about everything else. An observer is refused, and fetches from the leader,
if its log is not a prefix of the committed records here, if it needs a snapshot, or if it stays
ahead of this voter for the time that its fetch may wait. So nobody truncates records on the word of
a follower, which may itself be behind: records of an observer may already count for a commit of the
leader, if the leader has just made the observer a voter. KRaft's followers serve nobody; the
records and their order are the same.
"""

import asyncio
from collections.abc import Callable

from ottla_broker.event_timeout import wait_for_event
from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.raft_replica import RaftReplica
from ottla_broker.metadata.raft_rules import Role
from ottla_broker.metadata.voter_set import ReplicaKey


class ObserverFetches:
    """`replica`: the state of this broker, `me`, in the quorum. `now`: the event loop's clock."""

    def __init__(self, me: ReplicaKey, log: MetadataLog, replica: RaftReplica, now: Callable[[], float]) -> None:
        self._me = me
        self._log = log
        self._replica = replica
        self._now = now
        self._changed = asyncio.Event()
        self._notified_offset = 0

    async def handle_fetch(self, request: MetadataFetchRequest) -> MetadataFetchResponse | None:
        """The response, as soon as there are committed records or a new high watermark for the
        observer, or after `max_wait_ms`; None if the observer has to fetch from the leader.
        """
        offset, deadline_s = request.log_end.offset, self._now() + request.max_wait_ms / 1000
        while self._serves(request):
            high_watermark, log = self._log.high_watermark, self._log.partition_log
            is_behind = high_watermark < offset
            if not is_behind and self._log.find_divergence(request.log_end) is not None:
                return None
            remaining_s = deadline_s - self._now()
            if not is_behind and (request.high_watermark < high_watermark or remaining_s <= 0):
                records = bytes(log.read(offset, request.max_bytes, up_to=high_watermark))
                return MetadataFetchResponse(high_watermark=high_watermark, log_start_offset=log.start, records=records)
            if remaining_s <= 0:
                return None
            await wait_for_event(self._changed, remaining_s)
        return None

    def _serves(self, request: MetadataFetchRequest) -> bool:
        """True while this broker is a voter that hears the leader of the request's epoch, and the
        sender is none of the voters, which have to fetch from the leader."""
        state, voters = self._replica.state, {voter.key for voter in self._log.voters.latest}
        is_heard = state.role is Role.FOLLOWER and state.hears_leader and state.epoch == request.leader_epoch
        sender = request.replica_id, request.directory_id
        return is_heard and self._me in voters and sender not in voters

    def notify_commits(self) -> None:
        """Called when this broker has fetched. Wakes waiting fetches if the high watermark has
        risen."""
        if self._log.high_watermark > self._notified_offset:
            self._notified_offset = self._log.high_watermark
            self.notify()

    def notify(self) -> None:
        """Wakes waiting fetches. Called also when this broker no longer follows the leader."""
        self._changed.set()
        self._changed = asyncio.Event()
