"""The controller's part for brokers: registration, heartbeats, fencing, controlled shutdown,
unregistration.

- A broker registers fenced. It is unfenced by the first heartbeat that shows that it has applied
  the metadata up to its registration, or, if it was fenced later, up to the newest record at its
  first heartbeat after that fencing. Otherwise it would believe that it still leads partitions that
  others lead by now, and that it has a session (rule 6).
- It is fenced on request, when its session expires, or when its port refuses connections
  (`failure_detector`).
- A new controller has received no heartbeats. A broker that is unfenced in its image may be an
  incarnation before a disk was wiped, and a partition placed on that incarnation alone would have
  no replica (rule 4). So before new partitions are placed, every broker has sent a heartbeat or is
  fenced.
- A broker may stop when others lead its partitions, as far as other in-sync replicas may lead, and
  every other unfenced broker that is not shutting down itself has applied that. The broker is
  fenced before the response allows the stop.
"""

import asyncio
import logging
from collections.abc import Collection
from uuid import UUID

import msgspec

from ottla_broker.metadata import broker_plans
from ottla_broker.metadata.heartbeat_tracker import HeartbeatTracker
from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.metadata.metadata_writer import MetadataWriter
from ottla_broker.metadata.records import MetadataRecord, RegisterBrokerRecord
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class BrokerHeartbeat(msgspec.Struct, frozen=True):
    """`metadata_offset`: the last metadata record that the broker has applied;
    `offline_directories`: its log.dirs that have failed."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_directories: Collection[UUID] = ()


class BrokerHeartbeatReply(msgspec.Struct, frozen=True):
    """`is_caught_up`: the broker has applied the metadata that it needs to be unfenced."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False


class ClusterControl:
    """Methods raise KafkaError, NOT_CONTROLLER when another broker was elected meanwhile.
    `leadership_timeout_s`: see `quorum.leadership_timeout_s`."""

    def __init__(self, writer: MetadataWriter, session_timeout_s: float, leadership_timeout_s: float) -> None:
        self._writer = writer
        self._leadership_timeout_s = leadership_timeout_s
        self._image = writer.image
        self._now = asyncio.get_running_loop().time
        self.heartbeats = HeartbeatTracker(session_timeout_s, self._now())
        for broker in self._image.unfenced_brokers():  # each has a whole session for its first heartbeat here
            self.heartbeats.record_heartbeat(broker.id, broker.epoch, -1, self._now())
        self._heartbeat_received = StateCondition()
        self._unfence_offsets: dict[int, int] = {}  # fenced broker → metadata record to apply before it is unfenced
        self._shutdown_offsets: dict[int, int] = {}  # stopping broker → metadata record that others must have applied

    async def register_broker(self, registration: RegisterBrokerRecord, previous_epoch: int) -> int:
        """Returns the broker epoch. Raises DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION."""
        broker = registration.broker

        def plan() -> list[MetadataRecord]:
            known = self._image.brokers.get(broker)
            in_session = known is not None and self.heartbeats.is_alive(known.id, known.epoch, self._now())
            broker_plans.validate_registration(self._image, registration, in_session=in_session)
            return broker_plans.plan_broker_registration(
                self._image, registration, previous_epoch, self._writer.topic_rules()
            )

        is_new = await self._writer.apply_plan(plan)
        epoch = self._image.brokers[broker].epoch
        if is_new:
            self.heartbeats.remove(broker, epoch)
            self._shutdown_offsets.pop(broker, None)
            self._unfence_offsets[broker] = epoch
            self._heartbeat_received.notify_all()
            logger.info("registered broker %d with epoch %d", broker, epoch)
        return epoch

    async def process_heartbeat(self, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        """Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; NOT_CONTROLLER without a majority of
        the metadata log's voters, because another controller may have been elected."""
        if not self._writer.quorum.hears_majority(self._leadership_timeout_s):
            raise KafkaError(
                ErrorCode.not_controller, "this controller hears from no majority of the metadata log's voters"
            )
        broker, epoch = heartbeat.broker_id, heartbeat.broker_epoch
        registered = self.check_broker_epoch(broker, epoch)
        self.heartbeats.record_heartbeat(broker, epoch, heartbeat.metadata_offset, self._now())
        self._heartbeat_received.notify_all()
        if heartbeat.want_shut_down:
            await self._record_directory_failure(registered, heartbeat.offline_directories)
            return await self._process_controlled_shutdown(registered, heartbeat)
        is_caught_up = heartbeat.metadata_offset >= self._required_offset(registered)
        if heartbeat.want_fence:
            await self.fence_broker(broker, epoch, "requested by the broker")
        elif registered.fenced and is_caught_up:
            await self._unfence(broker, epoch)
        await self._record_directory_failure(registered, heartbeat.offline_directories)
        return BrokerHeartbeatReply(is_caught_up, self.check_broker_epoch(broker, epoch).fenced)

    async def _record_directory_failure(self, registered: BrokerRegistration, offline: Collection[UUID]) -> None:
        """Replicas on failed directories leave the ISRs; other brokers lead in their place."""
        if set(registered.directories) & set(offline):
            await self._writer.apply_plan(
                lambda: broker_plans.plan_directory_failure(
                    self._image, registered.id, offline, self._writer.topic_rules()
                )
            )

    async def wait_until_all_heard(self) -> None:
        """Returns when every unfenced broker has sent a heartbeat to this controller, at the latest
        when those that did not are fenced."""

        def are_all_heard() -> bool:
            return all(self.heartbeats.metadata_offset(broker.id) >= 0 for broker in self._image.unfenced_brokers())

        timeout_s = self.heartbeats.timeout_s + 2 * self.heartbeats.check_interval_s
        await self._heartbeat_received.wait_for(are_all_heard, timeout_s=timeout_s)

    async def fence_broker(self, broker: int, epoch: int, reason: str, *, level: int = logging.WARNING) -> None:
        """Fences a broker. Does nothing if it is fenced already, or registered with another
        epoch.
        """
        if await self._writer.apply_plan(lambda: self._plan_fencing(broker, epoch)):
            logger.log(level, "fenced broker %d: %s", broker, reason)
        self.heartbeats.remove(broker, epoch)
        self._heartbeat_received.notify_all()

    async def fence_expired_sessions(self) -> None:
        """Called every `heartbeats.check_interval_s`."""
        for broker, epoch in self.heartbeats.find_expired_sessions(self._now()):

            def plan(broker: int = broker, epoch: int = epoch) -> list[MetadataRecord]:
                # A heartbeat may have arrived while another plan was committed.
                is_alive = self.heartbeats.is_alive(broker, epoch, self._now())
                return [] if is_alive else self._plan_fencing(broker, epoch)

            if await self._writer.apply_plan(plan):
                logger.warning("fenced broker %d: no heartbeat for %g s", broker, self.heartbeats.timeout_s)
            if not self.heartbeats.is_alive(broker, epoch, self._now()):
                self.heartbeats.remove(broker, epoch)
                self._heartbeat_received.notify_all()

    async def unregister_broker(self, broker: int) -> None:
        """Raises BROKER_ID_NOT_REGISTERED."""
        registered = self._image.brokers.get(broker)
        await self._writer.apply_plan(
            lambda: broker_plans.plan_unregistration(self._image, broker, self._writer.topic_rules())
        )
        if registered is not None:
            self.heartbeats.remove(broker, registered.epoch)
        logger.warning("unregistered broker %d", broker)

    def check_broker_epoch(self, broker: int, epoch: int) -> BrokerRegistration:
        """The broker's registration. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
        registered = self._image.brokers.get(broker)
        if registered is None:
            raise KafkaError(ErrorCode.broker_id_not_registered, f"no broker {broker} is registered")
        if registered.epoch != epoch:
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"broker {broker} is registered with epoch {registered.epoch}, not {epoch}",
            )
        return registered

    async def _unfence(self, broker: int, epoch: int) -> None:
        def plan() -> list[MetadataRecord]:
            self.check_broker_epoch(broker, epoch)
            return broker_plans.plan_unfencing(self._image, broker, self._writer.topic_rules())

        if await self._writer.apply_plan(plan):
            logger.info("unfenced broker %d", broker)
            self._unfence_offsets.pop(broker, None)

    def _required_offset(self, broker: BrokerRegistration) -> int:
        """The metadata record that the broker must have applied: that of its registration, or,
        after a later fencing, the newest at its first heartbeat since.
        """
        if not broker.fenced:
            return broker.epoch
        return self._unfence_offsets.setdefault(broker.id, self._image.end_offset - 1)

    async def _process_controlled_shutdown(
        self, registered: BrokerRegistration, heartbeat: BrokerHeartbeat
    ) -> BrokerHeartbeatReply:
        broker, epoch = heartbeat.broker_id, heartbeat.broker_epoch

        def plan() -> list[MetadataRecord]:
            self.check_broker_epoch(broker, epoch)
            return broker_plans.plan_controlled_shutdown(self._image, broker, self._writer.topic_rules())

        if await self._writer.apply_plan(plan) or broker not in self._shutdown_offsets:
            self._shutdown_offsets[broker] = self._image.end_offset - 1
        offset = self._shutdown_offsets[broker]
        others = [it.id for it in self._image.unfenced_brokers() if it.id != broker and not it.shutting_down]
        may_stop = all(self.heartbeats.metadata_offset(other) >= offset for other in others)
        if may_stop:
            await self.fence_broker(broker, epoch, "controlled shutdown", level=logging.INFO)
            self._shutdown_offsets.pop(broker, None)
        is_caught_up = heartbeat.metadata_offset >= registered.epoch
        return BrokerHeartbeatReply(is_caught_up, may_stop, should_shut_down=may_stop)

    def _plan_fencing(self, broker: int, epoch: int) -> list[MetadataRecord]:
        registered = self._image.brokers.get(broker)
        if registered is None or registered.epoch != epoch:
            return []
        return broker_plans.plan_fencing(self._image, broker, self._writer.topic_rules())
