"""The controller's part that deals with brokers: registration, heartbeats, fencing, their orderly stop, taking them out.

- A broker registers fenced, and is unfenced by its first heartbeat that shows that it knows the metadata up to its own registration; one that was fenced
  later, up to that: or it would believe that it still leads what others lead by now, and that the controller hears it (rule 6).
- It is fenced when it wants to be, when it is silent for a session, or when its port refuses connections (`pulses`).
- A new controller has heard nobody. Who is not fenced in its image may be the life of a broker before its disk was wiped, and a partition that is given
  to that life alone is nobody's when the wiped one comes (rule 4): so before new partitions are placed, everybody is heard, or fenced.
- It may stop when what it led is led by others and every other live broker knows that; the answer that says so fences it.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from ottla_broker.metadata import broker_plans
from ottla_broker.metadata.heartbeat_tracker import HeartbeatTracker
from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.metadata.metadata_writer import MetadataWriter
from ottla_broker.metadata.records import MetadataRecord, RegisterBrokerRecord
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat:
    """`offset`: the last metadata record that the broker has applied. `offline`: those of its directories that have failed."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_directories: Collection[UUID] = ()


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatReply:
    """What a broker is told of itself. `caught_up`: it knows the metadata that it must know before it is unfenced."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False


class ClusterControl:
    """`believed_s`: see `sessions`. Times are the running loop's. Commands raise KafkaError: NOT_CONTROLLER when the lead was lost meanwhile."""

    def __init__(self, turn: MetadataWriter, session_timeout_s: float, believed_s: float) -> None:
        self._writer = turn
        self._leadership_timeout_s = believed_s
        self._image = turn.image
        self._now = asyncio.get_running_loop().time
        self.heartbeats = HeartbeatTracker(session_timeout_s, self._now())
        for (
            broker
        ) in self._image.unfenced_brokers():  # a new controller has heard nobody yet: everybody gets a whole session
            self.heartbeats.record_heartbeat(broker.id, broker.epoch, -1, self._now())
        self._unfence_offsets: dict[
            int, int
        ] = {}  # fenced brokers → the metadata record that they have to know before they are not
        self._heartbeat_received = StateCondition()
        self._shutdown_offsets: dict[
            int, int
        ] = {}  # brokers about to stop → the metadata record that others must know before

    async def register_broker(self, coming: RegisterBrokerRecord, previous_epoch: int) -> int:
        """The broker epoch. DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION."""

        def plan() -> list[MetadataRecord]:
            known = self._image.brokers.get(coming.broker)
            lives = known is not None and self.heartbeats.is_alive(known.id, known.epoch, self._now())
            broker_plans.validate_registration(self._image, coming, in_session=lives)
            return broker_plans.plan_registration(self._image, coming, previous_epoch, self._writer.topic_rules())

        came = await self._writer.apply_plan(plan)
        epoch = self._image.brokers[coming.broker].epoch
        if came:
            self.heartbeats.remove(coming.broker, epoch)
            self._shutdown_offsets.pop(coming.broker, None)
            self._unfence_offsets[coming.broker] = epoch
            self._heartbeat_received.notify_all()
            logger.info("broker %d is registered with epoch %d", coming.broker, epoch)
        return epoch

    async def process_heartbeat(self, beat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        """BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; NOT_CONTROLLER when there may be another one, because no majority is heard."""
        if not self._writer.log.hears_majority(self._leadership_timeout_s):
            raise KafkaError(
                ErrorCode.not_controller, "this controller hears no majority of the metadata log's members"
            )
        known = self.check_broker_epoch(beat.broker_id, beat.broker_epoch)
        self.heartbeats.record_heartbeat(beat.broker_id, beat.broker_epoch, beat.metadata_offset, self._now())
        self._heartbeat_received.notify_all()
        if beat.want_shut_down:
            return await self._process_controlled_shutdown(known, beat)
        caught_up = beat.metadata_offset >= self._required_offset(known)
        if beat.want_fence:
            await self.fence_broker(beat.broker_id, beat.broker_epoch, "it asked to be")
        elif known.fenced and caught_up:
            await self._unfence(beat.broker_id, beat.broker_epoch)
        if set(known.directories) & set(beat.offline_directories):
            await self._writer.apply_plan(
                lambda: broker_plans.plan_directory_failure(
                    self._image, beat.broker_id, beat.offline_directories, self._writer.topic_rules()
                )
            )
        now = self.check_broker_epoch(beat.broker_id, beat.broker_epoch)
        return BrokerHeartbeatReply(caught_up, now.fenced)

    async def wait_until_all_heard(self) -> None:
        """Returns when this controller has heard every broker that is not fenced; in any case when who was silent is fenced."""

        def heard() -> bool:
            return all(self.heartbeats.metadata_offset(one.id) >= 0 for one in self._image.unfenced_brokers())

        await self._heartbeat_received.wait_for(
            heard, timeout_s=self.heartbeats.timeout_s + 2 * self.heartbeats.check_interval_s
        )

    async def fence_broker(self, broker: int, epoch: int, why: str, *, level: int = logging.WARNING) -> None:
        """Nothing when it is fenced, or registered anew."""

        def plan() -> list[MetadataRecord]:
            return self._plan_fencing(broker, epoch)

        if await self._writer.apply_plan(plan):
            logger.log(level, "broker %d is fenced: %s", broker, why)
        self.heartbeats.remove(broker, epoch)
        self._heartbeat_received.notify_all()

    async def fence_expired_sessions(self) -> None:
        """Called every `sessions.turn_s`."""
        for broker, epoch in self.heartbeats.expire_sessions(self._now()):

            def plan(broker: int = broker, epoch: int = epoch) -> list[MetadataRecord]:
                heard_meanwhile = self.heartbeats.is_alive(broker, epoch, self._now())
                return [] if heard_meanwhile else self._plan_fencing(broker, epoch)

            if await self._writer.apply_plan(plan):
                logger.warning("broker %d is fenced: it was silent for %g s", broker, self.heartbeats.timeout_s)
            if not self.heartbeats.is_alive(broker, epoch, self._now()):
                self.heartbeats.remove(broker, epoch)
                self._heartbeat_received.notify_all()

    async def unregister_broker(self, broker: int) -> None:
        """BROKER_ID_NOT_REGISTERED."""
        known = self._image.brokers.get(broker)
        await self._writer.apply_plan(
            lambda: broker_plans.plan_unregistration(self._image, broker, self._writer.topic_rules())
        )
        if known is not None:
            self.heartbeats.remove(broker, known.epoch)
        logger.warning("broker %d is not registered any more", broker)

    def check_broker_epoch(self, broker: int, epoch: int) -> BrokerRegistration:
        """BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
        known = self._image.brokers.get(broker)
        if known is None:
            raise KafkaError(ErrorCode.broker_id_not_registered, f"no broker {broker} is registered")
        if known.epoch != epoch:
            raise KafkaError(
                ErrorCode.stale_broker_epoch, f"broker {broker} is registered with epoch {known.epoch}, not {epoch}"
            )
        return known

    async def _unfence(self, broker: int, epoch: int) -> None:
        def plan() -> list[MetadataRecord]:
            self.check_broker_epoch(broker, epoch)
            return broker_plans.plan_unfencing(self._image, broker, self._writer.topic_rules())

        if await self._writer.apply_plan(plan):
            logger.info("broker %d is unfenced", broker)
            self._unfence_offsets.pop(broker, None)

    def _required_offset(self, known: BrokerRegistration) -> int:
        """Everything until now, of a broker that is heard for the first time since it was fenced."""
        return self._unfence_offsets.setdefault(known.id, self._image.end_offset - 1) if known.fenced else known.epoch

    async def _process_controlled_shutdown(
        self, known: BrokerRegistration, beat: BrokerHeartbeat
    ) -> BrokerHeartbeatReply:
        def plan() -> list[MetadataRecord]:
            self.check_broker_epoch(beat.broker_id, beat.broker_epoch)
            return broker_plans.plan_controlled_shutdown(self._image, beat.broker_id, self._writer.topic_rules())

        if await self._writer.apply_plan(plan) or beat.broker_id not in self._shutdown_offsets:
            self._shutdown_offsets[beat.broker_id] = self._image.end_offset - 1
        others = [one for one in self._image.unfenced_brokers() if one.id != beat.broker_id and not one.shutting_down]
        may_stop = all(
            self.heartbeats.metadata_offset(one.id) >= self._shutdown_offsets[beat.broker_id] for one in others
        )
        if may_stop:
            await self.fence_broker(beat.broker_id, beat.broker_epoch, "it stops", level=logging.INFO)
            self._shutdown_offsets.pop(beat.broker_id, None)
        return BrokerHeartbeatReply(beat.metadata_offset >= known.epoch, may_stop, should_shut_down=may_stop)

    def _plan_fencing(self, broker: int, epoch: int) -> list[MetadataRecord]:
        known = self._image.brokers.get(broker)
        if known is None or known.epoch != epoch:
            return []
        return broker_plans.plan_fencing(self._image, broker, self._writer.topic_rules())
