"""A broker's life, with a real controller behind its link; and what rule 6 makes of silence."""

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
from tests.unit.api.test_controller_apis import ControllerApis
from tests.unit.log.memory_disk import MemoryDisk
from tests.unit.metadata.small_controller import SmallController, on_a_loop, until

ENDPOINTS = {"PLAINTEXT": Endpoint("here", 9092)}


class Directory:
    def __init__(self) -> None:
        self.directory_id = UUID(int=1007)
        self.previous_broker_epoch = -1
        self.broker_epoch = -1
        self.failure: str | None = None


class Here:
    """This broker is the controller, while it has one."""

    is_active_controller = True

    def controller_address(self) -> None:
        return None


class Heard:
    """An image of which a broker says that it has heard it up to here; None: all of it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.up_to: int | None = None

    @property
    def end_offset(self) -> int:
        return self._image.end_offset if self.up_to is None else self.up_to

    def __getattr__(self, name: str) -> Any:
        return getattr(self._image, name)


class Broker:
    """Broker 7's life beside a controller that others ask, too. `cut`: nothing comes through."""

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
        self.held: asyncio.Event | None = None  # answers wait for it
        self.asked_while_held = 0
        self.asked_majority_within_s: set[float] = set()
        self.cut = False
        self.replaced: list[str] = []
        self.majority: bool | None = None
        self.directories = [Directory()]
        config = Config.of(
            {
                "node.id": "7",
                "log.dirs": "/nowhere",
                "broker.heartbeat.interval.ms": str(interval_ms),
                "broker.session.timeout.ms": str(max(200, interval_ms)),
                "initial.broker.registration.timeout.ms": "400",
                "controller.quorum.fetch.timeout.ms": str(fetch_timeout_ms),
            }
        )
        ask = ControllerApis(small).send

        async def answer(request: Any) -> Any:
            if self.cut:
                raise KafkaError(ErrorCode.not_controller)
            answered = await ask(request)
            if self.held is not None:
                self.asked_while_held += 1
                await self.held.wait()
            return answered

        def hears_majority(within_s: float) -> bool | None:
            self.asked_majority_within_s.add(within_s)
            return self.majority

        link = ControllerChannel(Here(), "broker-7", answer)
        self.last_life = PreviousIncarnation("/data", disk or MemoryDisk(), Runtime(boot_id=lambda: boot))
        self.life = BrokerLifecycle(
            config,
            UUID(int=incarnation),
            image or small.image,
            link,
            cast(Any, self.directories),
            self.last_life,
            hears_majority=hears_majority,
            on_replaced=self.replaced.append,
        )

    async def come(self) -> "Broker":
        await self.life.register("c", ENDPOINTS)
        self.running = asyncio.create_task(self.life.run())
        await self.life.wait_until_unfenced()
        return self


@on_a_loop
async def test_it_registers_is_unfenced_and_stays() -> None:
    small = SmallController()
    broker = await Broker(small).come()
    registered = small.image.brokers[7]
    assert (registered.epoch, registered.fenced, registered.rack) == (broker.life.broker_epoch, False, None)
    assert registered.endpoints == ENDPOINTS
    assert broker.directories[0].broker_epoch == broker.life.broker_epoch
    assert broker.life.is_in_session
    broker.running.cancel()


@on_a_loop
async def test_rule_6_who_is_not_heard_for_a_session_is_in_none() -> None:
    small = SmallController()
    broker = await Broker(small).come()
    broker.cut = True
    await until(lambda: not broker.life.is_in_session)
    broker.cut = False
    await until(lambda: broker.life.is_in_session)
    broker.majority = False  # it is the controller itself, and hears nobody
    assert not broker.life.is_in_session
    broker.running.cancel()


@on_a_loop
async def test_a_new_controller_hears_it_at_once() -> None:
    small = SmallController()
    broker = await Broker(small, interval_ms=60_000).come()
    small.brokers.heartbeats.remove(7, broker.life.broker_epoch)
    broker.life.send_heartbeat_now()
    await until(lambda: small.brokers.heartbeats.metadata_offset(7) >= 0)
    broker.running.cancel()


@on_a_loop
async def test_rule_6_who_was_the_controller_has_only_its_own_word_that_it_was_heard() -> None:
    """Whoever follows it fences it at once: it is in a session when that one has answered it,
    whatever it has answered itself before.
    """
    small = SmallController()
    broker = await Broker(small, interval_ms=20).come()
    broker.majority = True
    await until(lambda: broker.life.is_in_session)
    broker.cut, broker.majority = True, None
    broker.life.on_controller_resigned()
    assert not broker.life.is_in_session
    broker.cut = False
    await until(lambda: broker.life.is_in_session)
    broker.running.cancel()


@on_a_loop
async def test_rule_6_what_it_answered_itself_just_before_does_not_come_after() -> None:
    small = SmallController()
    broker = await Broker(small, interval_ms=20).come()
    broker.held = asyncio.Event()
    await until(lambda: broker.asked_while_held > 0)
    broker.life.on_controller_resigned()
    held, broker.held = broker.held, asyncio.Event()
    held.set()  # the answer to what was sent before
    await until(lambda: broker.asked_while_held > 1)
    assert not broker.life.is_in_session
    broker.held.set()
    await until(lambda: broker.life.is_in_session)
    broker.running.cancel()


@on_a_loop
async def test_rule_6_a_controller_believes_itself_no_longer_than_others_wait_before_they_follow_it() -> None:
    small = SmallController()
    broker = await Broker(small, fetch_timeout_ms=100).come()
    assert broker.life.is_in_session
    assert broker.asked_majority_within_s == {0.1}
    broker.running.cancel()


@on_a_loop
async def test_rule_6_who_is_fenced_is_in_no_session() -> None:
    """Heard again, but others may lead by now what it has not heard of."""
    small = SmallController()
    heard = Heard(small.image)
    broker = await Broker(small, image=heard).come()
    heard.up_to = small.image.end_offset
    await small.brokers.fence_broker(7, broker.life.broker_epoch, "a test")
    await until(lambda: not broker.life.is_in_session)
    assert small.fenced() == [7]
    heard.up_to = None
    await until(lambda: broker.life.is_in_session)
    broker.running.cancel()


@on_a_loop
async def test_it_waits_until_its_predecessor_is_given_up() -> None:
    small = SmallController(broker_session_timeout_ms="100", broker_heartbeat_interval_ms="20")
    epoch = await small.register(7, incarnation=1, directories=(5,))
    await small.brokers.process_heartbeat(BrokerHeartbeat(7, epoch, epoch))
    running = asyncio.create_task(small.controller.run())
    broker = await Broker(small).come()
    assert broker.life.broker_epoch > epoch
    broker.running.cancel()
    running.cancel()


@on_a_loop
async def test_it_gives_up_when_nobody_takes_it() -> None:
    broker = Broker(SmallController())
    broker.cut = True
    with pytest.raises(KafkaError, match=r"broker 7 could not register within 0\.4 s") as caught:
        await broker.life.register("c", ENDPOINTS)
    assert caught.value.code is ErrorCode.not_controller
    broker.cut = False
    with pytest.raises(KafkaError) as caught:
        await broker.life.register("another", ENDPOINTS)
    assert caught.value.code is ErrorCode.inconsistent_cluster_id


@on_a_loop
async def test_it_is_let_go_when_others_lead() -> None:
    small = await SmallController().come(1)
    broker = await Broker(small).come()
    await small.topic(replicas=(7, 1))
    leaving = asyncio.create_task(broker.life.controlled_shutdown())
    await until(lambda: small.state().leader == 1)
    assert not leaving.done()
    await small.beat(1)
    await leaving
    assert small.fenced() == [7]
    await broker.running  # nobody hears of it any more


@on_a_loop
async def test_it_goes_when_another_process_is_this_broker() -> None:
    small = SmallController()
    broker = await Broker(small).come()
    await small.register(7, incarnation=8, directories=(1007,))
    await broker.running
    assert broker.replaced == ["another process has registered as broker 7"]
    assert not broker.life.is_in_session


@on_a_loop
async def test_it_comes_again_when_it_was_taken_out() -> None:
    small = SmallController()
    broker = await Broker(small).come()
    before = broker.life.broker_epoch
    await small.brokers.unregister_broker(7)
    await until(lambda: 7 in small.image.brokers and not small.image.brokers[7].fenced)
    assert broker.life.broker_epoch > before
    assert broker.replaced == []
    broker.running.cancel()


@on_a_loop
async def test_without_a_directory_that_works_it_is_fenced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    small = SmallController()
    broker = await Broker(small).come()
    broker.directories[0].failure = "it smokes"
    await until(lambda: small.fenced() == [7])
    await until(lambda: small.image.brokers[7].directories == ())  # the controller does one after the other
    assert broker.last_life.trusted_epoch() == NO_TRUSTED_EPOCH
    broker.running.cancel()


# --- what a last life has lost


@pytest.mark.parametrize(
    ("first", "then", "keeps"),
    [
        ("monday", "monday", True),  # the process was killed: the machine has all that it wrote
        ("monday", "tuesday", False),
        ("", "", False),  # nobody knows
    ],
)
def test_a_killed_process_has_lost_nothing_while_its_machine_runs(first: str, then: str, keeps: bool) -> None:
    @on_a_loop
    async def scenario() -> None:
        small, disk = await SmallController().come(1), MemoryDisk()
        disk.make_directory("/data")
        broker = await Broker(small, boot=first, disk=disk).come()
        await small.topic(replicas=(7, 1), min_insync_replicas="2")
        broker.running.cancel()
        await small.brokers.fence_broker(7, broker.life.broker_epoch, "a test")
        assert (small.state().isr, small.state().eligible) == ((1,), (7,))
        again = Broker(small, incarnation=8, boot=then, disk=disk)
        await again.life.register("c", ENDPOINTS)
        assert small.state().eligible == ((7,) if keeps else ())

    scenario()


@on_a_loop
async def test_what_a_clean_stop_says_comes_first() -> None:
    small, disk = await SmallController().come(1), MemoryDisk()
    disk.make_directory("/data")
    broker = await Broker(small, boot="monday", disk=disk).come()
    await small.topic(replicas=(7, 1), min_insync_replicas="2")
    broker.running.cancel()
    await small.brokers.fence_broker(7, broker.life.broker_epoch, "a test")
    again = Broker(small, incarnation=8, boot="tuesday", disk=disk)
    again.directories[0].previous_broker_epoch = broker.life.broker_epoch
    await again.life.register("c", ENDPOINTS)
    assert small.state().eligible == (7,)
