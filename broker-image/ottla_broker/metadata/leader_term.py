"""What a broker does while the register names it leader of the metadata log: takes the log over, keeps its name in the register, and sees to
it that the members are brokers that live.

Every write to the register may have an unknown end. A membership that was asked for therefore counts beside the old one until a write has
succeeded after it, or it has been read there: a write that comes late finds another version then, and fails.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.log_fetcher import MetadataLogFetcher, connect_to_peer
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_rules import EpochAndOffset, VoterCandidate, can_propose_voters, next_voter_set
from ottla_broker.metadata.records import LeaderChangeRecord
from ottla_broker.metadata.register import RegisterError, RegisterValue, ReplicaKey, Voter
from ottla_broker.metadata.register.steps import with_renewed_lease, with_voters
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
ANNOUNCEMENT_INTERVAL_S = 0.3
MAX_ANNOUNCEMENTS = 10
MAX_CONCURRENT_ANNOUNCEMENTS = 32


class LeaderTerm:
    """For one epoch, which `value` gave to this broker. `remember`: writes a value of the register to the disk, False when that failed.
    `listener`: the name of the one that brokers use among themselves."""

    def __init__(
        self,
        value: RegisterValue,
        leadership: LeaderState,
        view: RegisterView,
        remember: Callable[[RegisterValue], Awaitable[bool]],
        copying: MetadataLogFetcher,
        log: MetadataLog,
        runtime: Runtime,
        lease_ms: int,
        listener: str,
    ) -> None:
        self._value = value
        self._leader_state = leadership
        self._register_view = view
        self._persist_value = remember
        self._fetcher = copying
        self._log = log
        self._runtime = runtime
        self._lease_s = lease_ms / 1000
        self._listener = listener
        self._loop = asyncio.get_running_loop()

    async def run(self, established: Callable[[], None]) -> None:
        """Until cancelled, or the leadership is over. `established` is called when this broker is the active controller."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._announce_leader())
            tasks.create_task(self._become_leader(established))
            tasks.create_task(self._renew_lease())
            tasks.create_task(self._maintain_voters())

    # --- taking over

    async def _announce_leader(self) -> None:
        """Tells every broker at once, which may be quicker than what they hear of the register, and reaches those that cannot reach it."""
        gate = asyncio.Semaphore(MAX_CONCURRENT_ANNOUNCEMENTS)
        members = {member.broker: member.address for member in self._leader_state.voter_sets[0]}
        others = {member.broker: member.address for member in self._registered_voters()} | members
        others.pop(self._leader_state.me.broker, None)
        await asyncio.gather(*(self._announce_to(broker, address, gate) for broker, address in others.items()))

    async def _announce_to(self, broker: int, address: str, gate: asyncio.Semaphore) -> None:
        from ottla_broker.metadata.announcing import (
            send_begin_quorum_epoch,  # a broker that is alone has nobody to tell
        )

        leadership = self._leader_state
        for _ in range(MAX_ANNOUNCEMENTS):
            async with gate:
                if leadership.is_over or any(key[0] == broker for key in leadership.replicas):
                    return
                try:
                    await send_begin_quorum_epoch(address, self._fetcher.client_id, leadership.me, leadership.epoch)
                except (OSError, TimeoutError, KafkaError) as reason:
                    logger.debug(
                        "broker %d does not hear that broker %d leads: %s", broker, leadership.me.broker, reason
                    )
            await asyncio.sleep(ANNOUNCEMENT_INTERVAL_S)

    def _registered_voters(self) -> list[Voter]:
        """The brokers of the cluster, as members of the quorum that they may become."""
        found = []
        for broker in self._log.image.brokers.values():
            at = broker.endpoints.get(self._listener)
            if at is not None and broker.directories:
                found.append(Voter(broker.id, broker.directories[0], format_host_and_port(at.host, at.port)))
        return found

    async def _become_leader(self, established: Callable[[], None]) -> None:
        leadership = self._leader_state
        while (ahead := await leadership.wait_for_election_quorum()) is not None:
            if not await self._copy_log_from(*ahead):
                leadership.remove_replica(ahead[0])
        try:
            await leadership.start_epoch([LeaderChangeRecord(leadership.me.broker, leadership.epoch)])
        except KafkaError as reason:
            leadership.fail(reason)
            return
        leadership.is_established = True
        logger.info("broker %d leads the metadata log in epoch %d", leadership.me.broker, leadership.epoch)
        established()

    async def _copy_log_from(self, key: ReplicaKey, goal: EpochAndOffset) -> bool:
        """Takes over the log of a member that has more; whether it could be done."""
        address = next((member.address for member in self._leader_state.voter_sets[0] if member.key == key), "")
        try:
            channel = await connect_to_peer(address, self._fetcher.client_id)
            try:
                while self._log.log_end < goal:
                    told = await self._fetcher.fetch_once(channel, self._leader_state.epoch)
                    if not told.records and told.diverging_epoch is None and told.snapshot_id is None:
                        return False
                return True
            finally:
                channel.close()
        except (OSError, TimeoutError, KafkaError) as reason:
            logger.warning("cannot take over the metadata log of broker %d: %s", key[0], reason)
            return False

    # --- the lease

    async def _renew_lease(self) -> None:
        """Says in the register that this broker still leads, while it hears enough of the others; nothing of the kind where there are none."""
        leadership = self._leader_state
        period_s = self._lease_s / 3
        while not leadership.is_over:
            await asyncio.sleep(period_s)
            several = len(leadership.voter_sets[0]) > 1
            if (several or self._is_register_lost()) and leadership.hears_majority(period_s):
                try:
                    await self._register_view.update(self._renewed_value)
                except RegisterError:
                    continue  # nothing changes while it is away; the view says so

    def _is_register_lost(self) -> bool:
        """Whether the register was seen, and there is nothing in it."""
        return self._register_view.last_seen is not None and self._register_view.last_seen.value is None

    def _renewed_value(self, value: RegisterValue | None) -> RegisterValue | None:
        leadership = self._leader_state
        if value is None:
            # It was lost. Nobody can have led since, without it; and none but the leader can know what it should say.
            if not leadership.is_established or len(leadership.voter_sets) != 1:
                return None
            logger.warning("the register is empty: what it should say is written anew")
            return with_voters(self._value, leadership.voter_sets[0], self._runtime.now_ms())
        if value.epoch != leadership.epoch or value.holder != leadership.me.broker:
            return None  # somebody else leads, or this broker has resigned
        return with_renewed_lease(value, self._runtime.now_ms())

    # --- the members

    async def _maintain_voters(self) -> None:
        leadership = self._leader_state
        while not leadership.is_over:
            await leadership.wait_for_change(self._lease_s / 10)
            if leadership.epoch_start_offset is not None and (wanted := self._next_voters()) is not None:
                await self._change_voters(wanted)

    def _next_voters(self) -> tuple[Voter, ...] | None:
        """The membership that should be, one step away or with an address that has changed; None when it is as it should be, or cannot be
        asked for yet."""
        leadership, log = self._leader_state, self._log
        assert leadership.epoch_start_offset is not None
        now = self._loop.time()
        committed = max(log.high_watermark, leadership.epoch_start_offset)
        candidates = []
        for member in self._registered_voters():
            follower = leadership.replicas.get(member.key)
            heard_at = leadership.started_s if follower is None else follower.last_fetch_s
            mine = member.key == leadership.me.key
            alive = mine or now - heard_at <= self._lease_s
            caught_up = mine or (follower is not None and follower.acknowledged_offset >= committed)
            known = log.image.brokers.get(member.broker)
            candidates.append(
                VoterCandidate(member, caught_up, alive, is_shutting_down=known is not None and known.shutting_down)
            )
        members = leadership.voter_sets[0]
        moved = {candidate.voter.key: candidate.voter for candidate in candidates if candidate.is_alive}
        placed = tuple(moved.get(member.key, member) for member in members)
        if placed != members:
            return placed
        wanted = next_voter_set(members, leadership.me, candidates, len(log.image.brokers))
        if wanted is None or not can_propose_voters(
            wanted,
            leadership.acknowledged_offsets,
            high_watermark=log.high_watermark,
            epoch_start=leadership.epoch_start_offset,
        ):
            return None
        return wanted

    async def _change_voters(self, wanted: tuple[Voter, ...]) -> None:
        leadership = self._leader_state
        leadership.set_voter_sets([leadership.voter_sets[0], wanted])

        def change(value: RegisterValue | None) -> RegisterValue | None:
            if value is None or value.epoch != leadership.epoch or value.isr == wanted:
                return None
            return with_voters(value, wanted, self._runtime.now_ms())

        while not leadership.is_over:
            try:
                await self._register_view.update(change)
            except RegisterError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            value = self._register_view.value
            if value is not None and value.epoch == leadership.epoch and value.isr == wanted:
                if not await self._persist_value(
                    value
                ):  # were the register lost, this broker would think that it kept the metadata alone
                    await asyncio.sleep(RETRY_PAUSE_S)
                    continue
                leadership.set_voter_sets([wanted])
                logger.info("the metadata log is kept by brokers %s", ", ".join(str(m.broker) for m in wanted))
                return
            if value is not None and value.epoch != leadership.epoch:
                return  # another leads, as this broker is about to hear
            await asyncio.sleep(RETRY_PAUSE_S)
