"""The work of the metadata log's leader in one epoch: it announces itself, copies the most advanced log, renews its lease
in the register, and replaces voters that are dead.

A write to the register may have an unknown outcome. So a new voter set counts beside the old one until it has been
written or read in the register: a delayed write then finds another version and fails.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.log_fetcher import MetadataLogFetcher, connect_to_peer
from ottla_broker.metadata.quorum_rules import (
    EpochAndOffset,
    ReplicaKey,
    Voter,
    VoterCandidate,
    can_propose_voters,
    next_voter_set,
)
from ottla_broker.metadata.records import LeaderChangeRecord
from ottla_broker.metadata.register import RegisterError, RegisterValue
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
ANNOUNCEMENT_INTERVAL_S = 0.3
MAX_ANNOUNCEMENTS = 10
MAX_CONCURRENT_ANNOUNCEMENTS = 32


class LeaderTerm:
    """For the epoch that `value` gives to this broker. `persist_value` stores a value of the register on this broker's
    disk and returns False when that failed. `listener`: the name of the inter-broker listener."""

    def __init__(
        self,
        value: RegisterValue,
        leader_state: LeaderState,
        register_view: RegisterView,
        persist_value: Callable[[RegisterValue], Awaitable[bool]],
        fetcher: MetadataLogFetcher,
        runtime: Runtime,
        lease_ms: int,
        listener: str,
    ) -> None:
        self._value = value
        self._leader_state = leader_state
        self._register_view = register_view
        self._persist_value = persist_value
        self._fetcher = fetcher
        self._log = fetcher.log
        self._runtime = runtime
        self._lease_s = lease_ms / 1000
        self._listener = listener
        self._loop = asyncio.get_running_loop()

    async def run(self, on_established: Callable[[], None]) -> None:
        """Until cancelled or the epoch is over. `on_established` is called when this broker is the active controller."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._announce_leader())
            tasks.create_task(self._become_leader(on_established))
            tasks.create_task(self._renew_lease())
            tasks.create_task(self._maintain_voters())

    # --- becoming leader

    async def _announce_leader(self) -> None:
        """Sends BeginQuorumEpoch to every broker: sooner than most see the register's change, and also to those that
        cannot reach the register."""
        limit = asyncio.Semaphore(MAX_CONCURRENT_ANNOUNCEMENTS)
        others = {voter.broker: voter for voter in (*self._registered_brokers(), *self._leader_state.voters)}
        others.pop(self._leader_state.me.broker, None)
        await asyncio.gather(*(self._announce_to(peer, limit) for peer in others.values()))

    async def _announce_to(self, peer: Voter, limit: asyncio.Semaphore) -> None:
        leader = self._leader_state
        for _ in range(MAX_ANNOUNCEMENTS):
            async with limit:
                if leader.is_over or any(broker == peer.broker for broker, _ in leader.replicas):
                    return
                await announce_leader(peer, self._fetcher.client_id, leader.me, leader.epoch)
            await asyncio.sleep(ANNOUNCEMENT_INTERVAL_S)

    def _registered_brokers(self) -> list[Voter]:
        """The cluster's brokers, each as the voter that it would be."""
        brokers = []
        for broker in self._log.image.brokers.values():
            endpoint = broker.endpoints.get(self._listener)
            if endpoint is not None and broker.directories:
                address = format_host_and_port(endpoint.host, endpoint.port)
                brokers.append(Voter(broker.id, broker.directories[0], address))
        return brokers

    async def _become_leader(self, on_established: Callable[[], None]) -> None:
        leader = self._leader_state
        while (most_advanced := await leader.wait_for_election_quorum()) is not None:
            if not await self._copy_log_from(*most_advanced):
                leader.remove_replica(most_advanced[0])
        try:
            await leader.start_epoch([LeaderChangeRecord(leader.me.broker, leader.epoch)])
        except KafkaError as reason:
            leader.fail(reason)
            return
        leader.is_established = True
        logger.info("broker %d is the leader of the metadata log in epoch %d", leader.me.broker, leader.epoch)
        on_established()

    async def _copy_log_from(self, key: ReplicaKey, log_end: EpochAndOffset) -> bool:
        """Copies the log of a voter up to `log_end`; False when that fails."""
        peer = next((voter for voter in self._leader_state.voters if voter.key == key), Voter(*key))
        try:
            async with connect_to_peer(peer, self._fetcher.client_id) as channel:
                while self._log.log_end < log_end:
                    response = await self._fetcher.fetch_once(channel, self._leader_state.epoch)
                    if not response.records and response.diverging_epoch is None and response.snapshot_id is None:
                        return False
                return True
        except (OSError, KafkaError) as reason:
            logger.warning("failed to copy the metadata log of broker %d: %s", peer.broker, reason)
            return False

    # --- the lease

    async def _renew_lease(self) -> None:
        """Renews the lease in the register while a majority of the voters fetches. A single voter needs no lease."""
        leader = self._leader_state
        period_s = self._lease_s / 3
        while not leader.is_over:
            await asyncio.sleep(period_s)
            has_others = len(leader.voters) > 1
            if (has_others or self._is_register_lost()) and leader.hears_majority(period_s):
                try:
                    await self._register_view.update(self._renewed_value)
                except RegisterError:
                    continue  # logged by the view

    def _is_register_lost(self) -> bool:
        """True if the register was read and is empty."""
        return self._register_view.last_seen is not None and self._register_view.last_seen.value is None

    def _renewed_value(self, value: RegisterValue | None) -> RegisterValue | None:
        leader = self._leader_state
        if value is None:
            # The register was lost. No broker can have become leader without it, and only the leader knows the value.
            if not leader.is_established or len(leader.voter_sets) != 1:
                return None
            logger.warning("the register is empty: writing its value again")
            return self._value.with_voters(leader.voters, self._runtime.now_ms())
        if value.epoch != leader.epoch or value.holder != leader.me.broker:
            return None  # another broker leads, or this one has resigned
        return value.with_renewed_lease(self._runtime.now_ms())

    # --- voters

    async def _maintain_voters(self) -> None:
        leader = self._leader_state
        while not leader.is_over:
            await leader.wait_for_change(self._lease_s / 10)
            if leader.epoch_start_offset is not None:
                voters = self._next_voters(leader.epoch_start_offset)
                if voters is not None:
                    await self._change_voters(voters)

    def _next_voters(self, epoch_start_offset: int) -> tuple[Voter, ...] | None:
        """The voter set to change to: one voter away, or with a changed address. None when no change is needed or
        possible now."""
        leader, log = self._leader_state, self._log
        candidates = [self._candidate(voter, epoch_start_offset) for voter in self._registered_brokers()]
        current = {candidate.voter.key: candidate.voter for candidate in candidates if candidate.is_alive}
        voters = tuple(current.get(voter.key, voter) for voter in leader.voters)
        if voters != leader.voters:
            return voters
        proposed = next_voter_set(leader.voters, leader.me, candidates, len(log.image.brokers))
        if proposed is None or not can_propose_voters(
            proposed,
            leader.acknowledged_offsets,
            high_watermark=log.high_watermark,
            epoch_start_offset=epoch_start_offset,
        ):
            return None
        return proposed

    def _candidate(self, voter: Voter, epoch_start_offset: int) -> VoterCandidate:
        leader = self._leader_state
        replica = leader.replicas.get(voter.key)
        is_me = voter.key == leader.me.key
        committed = max(self._log.high_watermark, epoch_start_offset)
        last_fetch_s = leader.started_s if replica is None else replica.last_fetch_s
        registered = self._log.image.brokers.get(voter.broker)
        return VoterCandidate(
            voter,
            is_caught_up=is_me or (replica is not None and replica.acknowledged_offset >= committed),
            is_alive=is_me or self._loop.time() - last_fetch_s <= self._lease_s,
            is_shutting_down=registered is not None and registered.shutting_down,
        )

    async def _change_voters(self, voters: tuple[Voter, ...]) -> None:
        leader = self._leader_state
        leader.set_voter_sets([leader.voters, voters])

        def change(value: RegisterValue | None) -> RegisterValue | None:
            if value is None or value.epoch != leader.epoch or value.isr == voters:
                return None
            return value.with_voters(voters, self._runtime.now_ms())

        while not leader.is_over:
            try:
                await self._register_view.update(change)
            except RegisterError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            value = self._register_view.value
            if value is not None and value.epoch != leader.epoch:
                return  # another broker leads, which ends this epoch
            # Stored here too: without the register, this broker must not believe to be the only voter.
            if value is not None and value.isr == voters and await self._persist_value(value):
                leader.set_voter_sets([voters])
                logger.info("voters of the metadata log: brokers %s", ", ".join(str(voter.broker) for voter in voters))
                return
            await asyncio.sleep(RETRY_PAUSE_S)


async def announce_leader(peer: Voter, client_id: str, leader: Voter, epoch: int) -> None:
    """Sends BeginQuorumEpoch to one broker. Failures are logged."""
    from ottla_broker.metadata import quorum_messages  # takes 20 ms, and a broker without peers needs none of it

    try:
        async with connect_to_peer(peer, client_id) as channel:
            await quorum_messages.send_begin_quorum_epoch(channel, leader, epoch)
    except (OSError, KafkaError) as reason:
        logger.debug("failed to announce leader %d to broker %d: %s", leader.broker, peer.broker, reason)
