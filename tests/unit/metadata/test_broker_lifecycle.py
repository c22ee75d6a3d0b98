"""Registration, heartbeats and controlled shutdown of a broker, with a real controller."""

import asyncio
import logging
from typing import Any, cast
from uuid import UUID

import pytest

from ottla_broker.config import Config
from ottla_broker.metadata.broker_lifecycle import BrokerLifecycle
from ottla_broker.metadata.cluster_control import BrokerHeartbeat
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.previous_incarnation import NO_TRUSTED_EPOCH, PreviousIncarnation
from ottla_broker.metadata.records import Endpoint
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.api.controller_apis import ControllerApis
from tests.unit.async_tests import async_test, wait_until
from tests.unit.log.memory_disk import MemoryDisk
from tests.unit.metadata.small_controller import SmallController

ENDPOINTS = {"PLAINTEXT": Endpoint("here", 9092)}


class Directory:
    """A log directory, as `BrokerLifecycle` sees it."""

    def __init__(self) -> None:
        self.directory_id = UUID(int=1007)
        self.previous_broker_epoch = -1
        self.broker_epoch = -1
        self.failure: str | None = None


class LocalController:
    """A quorum whose controller is always this broker."""

    is_active_controller = True

    def controller_endpoint(self) -> None:
        return None


class LaggingImage:
    """An image that a broker reports as applied up to `visible_end_offset`; None: all of it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.visible_end_offset: int | None = None

    @property
    def end_offset(self) -> int:
        return self._image.end_offset if self.visible_end_offset is None else self.visible_end_offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._image, name)


class Broker:
    """Broker 7's lifecycle. `is_disconnected`: requests to the controller fail. `response_gate`: an
    event for which responses wait, or None. `hears_majority`: None if broker 7 is not the
    controller.
    """

    def __init__(
        self,
        small: SmallController,
        incarnation: int = 7,
        boot: str = "now",
        disk: Any = None,
        image: Any = None,
        interval_ms: int = 20,
        fetch_timeout_ms: int = 2000,
    ) -> None:
        self.small = small
        self.response_gate: asyncio.Event | None = None
        self.requests_at_gate = 0
        self.majority_timeouts_s: set[float] = set()
        self.is_disconnected = False
        self.replacement_reasons: list[str] = []
        self.hears_majority: bool | None = None
        self.directories = [Directory()]
        config = Config.of(
            {
                "node.id": "7",
                "log.dirs": "/nowhere",
                "broker.node": "n1",
                "broker.heartbeat.interval.ms": str(interval_ms),
                "broker.session.timeout.ms": str(max(200, interval_ms)),
                "initial.broker.registration.timeout.ms": "400",
                "controller.quorum.fetch.timeout.ms": str(fetch_timeout_ms),
            }
        )
        send_to_controller = ControllerApis(small).send

        async def answer_locally(request: Any) -> Any:
            if self.is_disconnected:
                raise KafkaError(ErrorCode.not_controller)
            response = await send_to_controller(request)
            if self.response_gate is not None:
                self.requests_at_gate += 1
                await self.response_gate.wait()
            return response

        def answer_majority(within_s: float) -> bool | None:
            self.majority_timeouts_s.add(within_s)
            return self.hears_majority

        channel = ControllerChannel(LocalController(), "broker-7", answer_locally)
        self.previous_incarnation = PreviousIncarnation("/data", disk or MemoryDisk(), Runtime(boot_id=lambda: boot))
        self.lifecycle = BrokerLifecycle(
            config,
            UUID(int=incarnation),
            image or small.image,
            channel,
            cast(Any, self.directories),
            self.previous_incarnation,
            hears_majority=answer_majority,
            on_replaced=self.replacement_reasons.append,
        )

    async def start(self) -> "Broker":
        await self.lifecycle.register("c", ENDPOINTS)
        self.heartbeats = asyncio.create_task(self.lifecycle.run())
        await self.lifecycle.wait_until_unfenced()
        return self


@async_test
async def test_a_broker_registers_and_is_unfenced() -> None:
    small = SmallController()
    broker = await Broker(small).start()
    registered = small.image.brokers[7]
    assert (registered.epoch, registered.fenced, registered.rack) == (broker.lifecycle.broker_epoch, False, None)
    assert registered.node == "n1"
    assert registered.endpoints == ENDPOINTS
    assert broker.directories[0].broker_epoch == broker.lifecycle.broker_epoch
    assert broker.lifecycle.is_in_session
    broker.heartbeats.cancel()


@async_test
async def test_rule_6_a_session_expires_without_answered_heartbeats() -> None:
    small = SmallController()
    broker = await Broker(small).start()
    broker.is_disconnected = True
    await wait_until(lambda: not broker.lifecycle.is_in_session)
    broker.is_disconnected = False
    await wait_until(lambda: broker.lifecycle.is_in_session)
    broker.hears_majority = False  # it is the controller, and hears no majority
    assert not broker.lifecycle.is_in_session
    broker.heartbeats.cancel()


@async_test
async def test_a_new_controller_gets_a_heartbeat_at_once() -> None:
    small = SmallController()
    broker = await Broker(small, interval_ms=60_000).start()
    small.brokers.heartbeats.remove(7, broker.lifecycle.broker_epoch)
    broker.lifecycle.send_heartbeat_now()
    await wait_until(lambda: small.brokers.heartbeats.metadata_offset(7) >= 0)
    broker.heartbeats.cancel()


@async_test
async def test_rule_6_heartbeats_that_a_former_controller_answered_itself_do_not_count() -> None:
    """The next controller fences the former one at once. The session of the former one begins with
    the first heartbeat that the next one answers.
    """
    small = SmallController()
    broker = await Broker(small, interval_ms=20).start()
    broker.hears_majority = True
    await wait_until(lambda: broker.lifecycle.is_in_session)
    broker.is_disconnected, broker.hears_majority = True, None
    broker.lifecycle.on_controller_resigned()
    assert not broker.lifecycle.is_in_session
    broker.is_disconnected = False
    await wait_until(lambda: broker.lifecycle.is_in_session)
    broker.heartbeats.cancel()


@async_test
async def test_rule_6_a_heartbeat_that_was_sent_before_a_resignation_does_not_count_after_it() -> None:
    small = SmallController()
    broker = await Broker(small, interval_ms=20).start()
    broker.response_gate = asyncio.Event()
    await wait_until(lambda: broker.requests_at_gate > 0)
    broker.lifecycle.on_controller_resigned()
    response_gate, broker.response_gate = broker.response_gate, asyncio.Event()
    response_gate.set()  # the response to the heartbeat that was sent before
    await wait_until(lambda: broker.requests_at_gate > 1)
    assert not broker.lifecycle.is_in_session
    broker.response_gate.set()
    await wait_until(lambda: broker.lifecycle.is_in_session)
    broker.heartbeats.cancel()


@async_test
async def test_rule_6_a_controller_asks_for_a_majority_within_the_fetch_timeout() -> None:
    small = SmallController()
    broker = await Broker(small, fetch_timeout_ms=100).start()
    assert broker.lifecycle.is_in_session
    assert broker.majority_timeouts_s == {0.1}
    broker.heartbeats.cancel()


@async_test
async def test_rule_6_a_fenced_broker_has_no_session() -> None:
    """Its heartbeats are answered, but it has not read which partitions other brokers lead now."""
    small = SmallController()
    lagging = LaggingImage(small.image)
    broker = await Broker(small, image=lagging).start()
    lagging.visible_end_offset = small.image.end_offset
    await small.brokers.fence_broker(7, broker.lifecycle.broker_epoch, "a test")
    await wait_until(lambda: not broker.lifecycle.is_in_session)
    assert small.fenced() == [7]
    lagging.visible_end_offset = None
    await wait_until(lambda: broker.lifecycle.is_in_session)
    broker.heartbeats.cancel()


@async_test
async def test_a_registration_waits_until_the_session_of_the_previous_process_expires() -> None:
    small = SmallController(broker_session_timeout_ms="100", broker_heartbeat_interval_ms="20")
    epoch = await small.register(7, incarnation=1, directories=(5,))
    await small.brokers.process_heartbeat(BrokerHeartbeat(7, epoch, epoch))
    control_loop = asyncio.create_task(small.controller.run())
    broker = await Broker(small).start()
    assert broker.lifecycle.broker_epoch > epoch
    broker.heartbeats.cancel()
    control_loop.cancel()


@async_test
async def test_a_registration_fails_at_its_timeout_and_in_another_cluster() -> None:
    broker = Broker(SmallController())
    broker.is_disconnected = True
    with pytest.raises(KafkaError, match=r"broker 7 could not register within 0\.4 s") as caught:
        await broker.lifecycle.register("c", ENDPOINTS)
    assert caught.value.code is ErrorCode.not_controller
    broker.is_disconnected = False
    with pytest.raises(KafkaError) as caught:
        await broker.lifecycle.register("another", ENDPOINTS)
    assert caught.value.code is ErrorCode.inconsistent_cluster_id


@async_test
async def test_controlled_shutdown_ends_when_the_new_leader_has_read_the_change() -> None:
    small = await SmallController().add_brokers(1)
    broker = await Broker(small).start()
    await small.add_topic(replicas=(7, 1))
    shutdown = asyncio.create_task(broker.lifecycle.controlled_shutdown())
    await wait_until(lambda: small.state().leader == 1)
    assert not shutdown.done()
    await small.heartbeat(1)
    await shutdown
    assert small.fenced() == [7]
    await broker.heartbeats  # it sends no more heartbeats


@async_test
async def test_a_broker_stops_when_another_process_registers_with_its_id() -> None:
    small = SmallController()
    broker = await Broker(small).start()
    await small.register(7, incarnation=8, directories=(1007,))
    await broker.heartbeats
    assert broker.replacement_reasons == ["another process has registered as broker 7"]
    assert not broker.lifecycle.is_in_session


@async_test
async def test_a_broker_that_was_unregistered_registers_again() -> None:
    small = SmallController()
    broker = await Broker(small).start()
    first_epoch = broker.lifecycle.broker_epoch
    await small.brokers.unregister_broker(7)
    await wait_until(lambda: 7 in small.image.brokers and not small.image.brokers[7].fenced)
    assert broker.lifecycle.broker_epoch > first_epoch
    assert broker.replacement_reasons == []
    broker.heartbeats.cancel()


@async_test
async def test_a_broker_without_an_online_directory_is_fenced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    small = SmallController()
    broker = await Broker(small).start()
    broker.directories[0].failure = "input/output error"
    await wait_until(lambda: small.fenced() == [7])
    await wait_until(lambda: small.image.brokers[7].directories == ())  # a second decision of the controller
    assert broker.previous_incarnation.read_trusted_epoch() == NO_TRUSTED_EPOCH
    broker.heartbeats.cancel()


# --- what the previous incarnation has lost


@pytest.mark.parametrize(
    ("first_boot", "restart_boot", "is_trusted"),
    [
        ("monday", "monday", True),  # the process was killed: the page cache still has all records
        ("monday", "tuesday", False),
        ("", "", False),  # the boot id is unknown
    ],
)
def test_a_killed_broker_stays_eligible_while_its_machine_has_not_restarted(
    first_boot: str, restart_boot: str, is_trusted: bool
) -> None:
    @async_test
    async def scenario() -> None:
        small, disk = await SmallController().add_brokers(1), MemoryDisk()
        disk.make_directory("/data")
        broker = await Broker(small, boot=first_boot, disk=disk).start()
        await small.add_topic(replicas=(7, 1), min_insync_replicas="2")
        broker.heartbeats.cancel()
        await small.brokers.fence_broker(7, broker.lifecycle.broker_epoch, "a test")
        assert (small.state().isr, small.state().eligible) == ((1,), (7,))
        restarted = Broker(small, incarnation=8, boot=restart_boot, disk=disk)
        await restarted.lifecycle.register("c", ENDPOINTS)
        assert small.state().eligible == ((7,) if is_trusted else ())

    scenario()


@async_test
async def test_a_clean_shutdown_counts_even_if_the_machine_has_restarted() -> None:
    small, disk = await SmallController().add_brokers(1), MemoryDisk()
    disk.make_directory("/data")
    broker = await Broker(small, boot="monday", disk=disk).start()
    await small.add_topic(replicas=(7, 1), min_insync_replicas="2")
    broker.heartbeats.cancel()
    await small.brokers.fence_broker(7, broker.lifecycle.broker_epoch, "a test")
    restarted = Broker(small, incarnation=8, boot="tuesday", disk=disk)
    restarted.directories[0].previous_broker_epoch = broker.lifecycle.broker_epoch
    await restarted.lifecycle.register("c", ENDPOINTS)
    assert small.state().eligible == (7,)
