"""The state of one replica in the quorum: its transitions, the promise that each one implies, and
the timer of its role.
"""

import asyncio
from collections.abc import Callable

from ottla_broker.metadata import raft_rules
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_state import QuorumStateFile
from ottla_broker.metadata.raft_rules import ElectionTimeouts, RaftState, Replica
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.voter_set import ReplicaKey
from ottla_broker.runtime import Runtime

MAX_ELECTION_DELAY_S = 0.05  # after the leader's port has refused a connection

RaftRule = Callable[[RaftState, Replica], RaftState]


class RaftReplica:
    """`state`: the state, of which the part `stored` is on disk. `on_promise` is called when a
    newer epoch is promised, before that is stored: from then on this broker acknowledges nothing in
    an older one. `expires_s`: event loop time at which the timer of the role expires; None: never.
    """

    def __init__(
        self,
        me: ReplicaKey,
        log: MetadataLog,
        file: QuorumStateFile,
        timeouts: ElectionTimeouts,
        runtime: Runtime,
        on_promise: Callable[[], None],
    ) -> None:
        self._me = me
        self._log = log
        self._file = file
        self._timeouts = timeouts
        self._runtime = runtime
        self._on_promise = on_promise
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._is_loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self.state = raft_rules.restart(file.stored, me)
        self._promised_epoch = self.state.epoch
        self.expires_s: float | None = None

    def start(self) -> None:
        """Called once the log is loaded. Transitions wait for it."""
        log_epoch = self._log.log_end.epoch
        if self.state.epoch < log_epoch:
            self.state = RaftState(epoch=log_epoch, failed_elections=1)  # quorum-state was lost
        self._promised_epoch = self.state.epoch
        self._is_loaded.set()
        self._set_state(self.state)

    def view(self) -> Replica:
        """This replica in the form that the rules use."""
        log, me = self._log, self._me
        voters = frozenset(voter.key for voter in log.voters.latest)
        was_voter = any(voter.key == me for known in log.voters.since(log.high_watermark) for voter in known)
        return Replica(me, voters, log.log_end, was_voter)

    def is_current_epoch(self, epoch: int) -> bool:
        return epoch == self._promised_epoch == self.state.epoch

    async def transition(self, rule: RaftRule) -> None:
        """Applies a rule. Returns when the new state is stored. On KAFKA_STORAGE_ERROR the state is
        unchanged.
        """
        await self._is_loaded.wait()
        # Not cancelled with the caller: the file would be written, and the state would not show it.
        await asyncio.shield(self._loop.create_task(self._apply_rule(rule)))

    async def _apply_rule(self, rule: RaftRule) -> None:
        async with self._lock:
            new = rule(self.state, self.view())
            if new == self.state:
                return
            self._promised_epoch = new.epoch
            if new.epoch != self.state.epoch:
                self._on_promise()
            stored = self._file.stored
            forgets_leader = new.stored == stored._replace(leader=NO_LEADER)
            if new.stored != stored and not forgets_leader:
                try:
                    await self._file.store(new.stored)
                except BaseException:
                    self._promised_epoch = self.state.epoch
                    raise
            self._set_state(new)

    def _set_state(self, state: RaftState) -> None:
        self.state = state
        self._arm_timer()
        self._changed.set()

    # --- the timer

    def _arm_timer(self) -> None:
        timeout_s = raft_rules.election_timeout_s(self.state, self.view(), self._timeouts, self._runtime.random)
        self.expires_s = None if timeout_s is None else self._loop.time() + timeout_s

    @property
    def has_expired(self) -> bool:
        return self.expires_s is not None and self.expires_s <= self._loop.time()

    def hear_leader(self) -> None:
        """Called when the leader, or a voter that hears it, has answered a fetch."""
        state = raft_rules.hear_leader(self.state)
        if state == self.state:
            self._arm_timer()
        else:
            self._set_state(state)

    def expire_soon(self) -> None:
        """Called when the leader's port has refused a connection, or the process there does not
        lead or belongs to another cluster. An election begins soon, at different times in different
        voters. The pauses after failed elections stay. Without effect in a role that never expires:
        this broker has left the leader's epoch already.
        """
        if self.expires_s is not None and self.state.failed_elections == 0:
            delay_s = self._runtime.random.uniform(0.0, MAX_ELECTION_DELAY_S)
            self.expires_s = min(self.expires_s, self._loop.time() + delay_s)
            self._changed.set()

    async def wait_for_change(self, work: "asyncio.Task[None]", *, may_expire: bool) -> None:
        """Returns when the state or the timer changed, the timer expired, or `work` has just
        ended.
        """
        change = self._loop.create_task(self._changed.wait())
        awaited = {change} if work.done() else {change, work}
        timeout_s = self.expires_s - self._loop.time() if may_expire and self.expires_s is not None else None
        try:
            await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
            self._changed.clear()
