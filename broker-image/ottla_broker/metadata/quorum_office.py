"""What a broker does while the register names it leader of the metadata log: takes the log over, keeps its name in the register, and sees to
it that the members are brokers that live.

Every write to the register may have an unknown end. A membership that was asked for therefore counts beside the old one until a write has
succeeded after it, or it has been read there: a write that comes late finds another version then, and fails.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla_broker.config.addresses import format_host_and_port
from ottla_broker.metadata.following import Copying, connect
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_rules import Candidate, EpochAndOffset, may_be_asked_for, next_membership
from ottla_broker.metadata.records import LeaderChangeRecord
from ottla_broker.metadata.register import Member, MemberKey, RegisterError, RegisterValue
from ottla_broker.metadata.register.steps import renewed, with_members
from ottla_broker.metadata.register_view import RegisterView
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

PAUSE_S = 0.1
ANNOUNCED_EVERY_S = 0.3
ANNOUNCED_TIMES = 10
ANNOUNCED_AT_A_TIME = 32


class Office:
    """For one epoch, which `value` gave to this broker. `remember`: writes a value of the register to the disk, False when that failed.
    `listener`: the name of the one that brokers use among themselves."""

    def __init__(
        self,
        value: RegisterValue,
        leadership: LeaderState,
        view: RegisterView,
        remember: Callable[[RegisterValue], Awaitable[bool]],
        copying: Copying,
        log: MetadataLog,
        runtime: Runtime,
        lease_ms: int,
        listener: str,
    ) -> None:
        self._value = value
        self._leadership = leadership
        self._view = view
        self._remember = remember
        self._copying = copying
        self._log = log
        self._runtime = runtime
        self._lease_s = lease_ms / 1000
        self._listener = listener
        self._loop = asyncio.get_running_loop()

    async def run(self, established: Callable[[], None]) -> None:
        """Until cancelled, or the leadership is over. `established` is called when this broker is the active controller."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._announce())
            tasks.create_task(self._establish(established))
            tasks.create_task(self._renew())
            tasks.create_task(self._keep_members())

    # --- taking over

    async def _announce(self) -> None:
        """Tells every broker at once, which may be quicker than what they hear of the register, and reaches those that cannot reach it."""
        gate = asyncio.Semaphore(ANNOUNCED_AT_A_TIME)
        members = {member.broker: member.address for member in self._leadership.memberships[0]}
        others = {member.broker: member.address for member in self._registered()} | members
        others.pop(self._leadership.me.broker, None)
        await asyncio.gather(*(self._announce_to(broker, address, gate) for broker, address in others.items()))

    async def _announce_to(self, broker: int, address: str, gate: asyncio.Semaphore) -> None:
        from ottla_broker.metadata.announcing import announce  # a broker that is alone has nobody to tell

        leadership = self._leadership
        for _ in range(ANNOUNCED_TIMES):
            async with gate:
                if leadership.over or any(key[0] == broker for key in leadership.followers):
                    return
                try:
                    await announce(address, self._copying.client_id, leadership.me, leadership.epoch)
                except (OSError, TimeoutError, KafkaError) as reason:
                    logger.debug(
                        "broker %d does not hear that broker %d leads: %s", broker, leadership.me.broker, reason
                    )
            await asyncio.sleep(ANNOUNCED_EVERY_S)

    def _registered(self) -> list[Member]:
        """The brokers of the cluster, as members of the quorum that they may become."""
        found = []
        for broker in self._log.image.brokers.values():
            at = broker.endpoints.get(self._listener)
            if at is not None and broker.directories:
                found.append(Member(broker.id, broker.directories[0], format_host_and_port(at.host, at.port)))
        return found

    async def _establish(self, established: Callable[[], None]) -> None:
        leadership = self._leadership
        while (ahead := await leadership.hear_enough()) is not None:
            if not await self._take_from(*ahead):
                leadership.forget(ahead[0])
        try:
            await leadership.begin([LeaderChangeRecord(leadership.me.broker, leadership.epoch)])
        except KafkaError as reason:
            leadership.fail(reason)
            return
        leadership.established = True
        logger.info("broker %d leads the metadata log in epoch %d", leadership.me.broker, leadership.epoch)
        established()

    async def _take_from(self, key: MemberKey, goal: EpochAndOffset) -> bool:
        """Takes over the log of a member that has more; whether it could be done."""
        address = next((member.address for member in self._leadership.memberships[0] if member.key == key), "")
        try:
            channel = await connect(address, self._copying.client_id)
            try:
                while self._log.position < goal:
                    told = await self._copying.step(channel, self._leadership.epoch)
                    if not told.records and told.diverging_epoch is None and told.snapshot_id is None:
                        return False
                return True
            finally:
                channel.close()
        except (OSError, TimeoutError, KafkaError) as reason:
            logger.warning("cannot take over the metadata log of broker %d: %s", key[0], reason)
            return False

    # --- the lease

    async def _renew(self) -> None:
        """Says in the register that this broker still leads, while it hears enough of the others; nothing of the kind where there are none."""
        leadership = self._leadership
        period_s = self._lease_s / 3
        while not leadership.over:
            await asyncio.sleep(period_s)
            several = len(leadership.memberships[0]) > 1
            if (several or self._is_lost()) and leadership.hears_majority(period_s):
                try:
                    await self._view.write(self._renewed)
                except RegisterError:
                    continue  # nothing changes while it is away; the view says so

    def _is_lost(self) -> bool:
        """Whether the register was seen, and there is nothing in it."""
        return self._view.seen is not None and self._view.seen.value is None

    def _renewed(self, value: RegisterValue | None) -> RegisterValue | None:
        leadership = self._leadership
        if value is None:
            # It was lost. Nobody can have led since, without it; and none but the leader can know what it should say.
            if not leadership.established or len(leadership.memberships) != 1:
                return None
            logger.warning("the register is empty: what it should say is written anew")
            return with_members(self._value, leadership.memberships[0], self._runtime.now_ms())
        if value.epoch != leadership.epoch or value.holder != leadership.me.broker:
            return None  # somebody else leads, or this broker has resigned
        return renewed(value, self._runtime.now_ms())

    # --- the members

    async def _keep_members(self) -> None:
        leadership = self._leadership
        while not leadership.over:
            await leadership.change(self._lease_s / 10)
            if leadership.start is not None and (wanted := self._wanted()) is not None:
                await self._ask_for(wanted)

    def _wanted(self) -> tuple[Member, ...] | None:
        """The membership that should be, one step away or with an address that has changed; None when it is as it should be, or cannot be
        asked for yet."""
        leadership, log = self._leadership, self._log
        assert leadership.start is not None
        now = self._loop.time()
        committed = max(log.high_watermark, leadership.start)
        candidates = []
        for member in self._registered():
            follower = leadership.followers.get(member.key)
            heard_at = leadership.began_at if follower is None else follower.heard_at
            mine = member.key == leadership.me.key
            alive = mine or now - heard_at <= self._lease_s
            caught_up = mine or (follower is not None and follower.end >= committed)
            known = log.image.brokers.get(member.broker)
            candidates.append(Candidate(member, caught_up, alive, leaving=known is not None and known.shutting_down))
        members = leadership.memberships[0]
        moved = {candidate.member.key: candidate.member for candidate in candidates if candidate.alive}
        placed = tuple(moved.get(member.key, member) for member in members)
        if placed != members:
            return placed
        wanted = next_membership(members, leadership.me, candidates, len(log.image.brokers))
        if wanted is None or not may_be_asked_for(
            wanted, leadership.ends, high_watermark=log.high_watermark, epoch_start=leadership.start
        ):
            return None
        return wanted

    async def _ask_for(self, wanted: tuple[Member, ...]) -> None:
        leadership = self._leadership
        leadership.set_memberships([leadership.memberships[0], wanted])

        def change(value: RegisterValue | None) -> RegisterValue | None:
            if value is None or value.epoch != leadership.epoch or value.isr == wanted:
                return None
            return with_members(value, wanted, self._runtime.now_ms())

        while not leadership.over:
            try:
                await self._view.write(change)
            except RegisterError:
                await asyncio.sleep(PAUSE_S)
                continue
            value = self._view.value
            if value is not None and value.epoch == leadership.epoch and value.isr == wanted:
                if not await self._remember(
                    value
                ):  # were the register lost, this broker would think that it kept the metadata alone
                    await asyncio.sleep(PAUSE_S)
                    continue
                leadership.set_memberships([wanted])
                logger.info("the metadata log is kept by brokers %s", ", ".join(str(m.broker) for m in wanted))
                return
            if value is not None and value.epoch != leadership.epoch:
                return  # another leads, as this broker is about to hear
            await asyncio.sleep(PAUSE_S)
