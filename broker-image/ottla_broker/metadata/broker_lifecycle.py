"""A broker's life in its cluster: it registers, says again and again that it lives, and says before it stops that it will.

`in_session` is what rule 6 asks for: whether the controller can have missed this broker yet. It is counted from when the last heartbeat that was
answered was sent, so it ends here before it ends there; and who is fenced has been missed already. A controller that hears no majority of the metadata log's members answers no heartbeats,
its own least of all: its successor may be at work already. That one begins by fencing it, so what a controller has answered itself counts no longer than it leads.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, cast
from uuid import UUID

from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v1.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v3.request import BrokerRegistrationRequest, Listener
from kio.schema.broker_registration.v3.response import BrokerRegistrationResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i16, i64, u16

from ottla_broker.config import (
    BROKER_HEARTBEAT_INTERVAL_MS,
    BROKER_RACK,
    BROKER_SESSION_TIMEOUT_MS,
    CONTROLLED_SHUTDOWN_ENABLE,
    INITIAL_BROKER_REGISTRATION_TIMEOUT_MS,
    Config,
)
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.last_life import PreviousIncarnation
from ottla_broker.metadata.records import Endpoint
from ottla_broker.metadata.sessions import believed_s
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

NO_BROKER_EPOCH: Final = -1
SOON_S: Final = 0.05  # between heartbeats while something is to come of them: being unfenced, being let go
LEAVE_WITHIN_S: Final = 10.0
PROTOCOL_CODES: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
AGAIN: Final = frozenset({ErrorCode.not_controller, ErrorCode.duplicate_broker_registration})


class Directory(Protocol):
    """A log directory, as far as the controller is told of it."""

    directory_id: UUID
    previous_broker_epoch: int
    broker_epoch: int
    failure: str | None


class BrokerLifecycle:
    """`hears_majority(within_s)`: of this broker as the metadata log's leader; None: it leads not. `replaced` is called when another process has
    registered under this broker's id, and nothing is left to this one but to go."""

    def __init__(
        self,
        config: Config,
        incarnation: UUID,
        image: MetadataImage,
        controller_channel: ControllerChannel,
        directories: Sequence[Directory],
        previous_incarnation: PreviousIncarnation,
        hears_majority: Callable[[float], bool | None],
        on_replaced: Callable[[str], None],
    ) -> None:
        self._config = config
        self._me = config.node_id
        self._incarnation = incarnation
        self._image = image
        self._link = controller_channel
        self._directories = directories
        self._last_life = previous_incarnation
        self._failed: list[UUID] = []
        self._hears_majority = hears_majority
        self._replaced = on_replaced
        self._interval_s = config(BROKER_HEARTBEAT_INTERVAL_MS) / 1000
        self._session_s = config(BROKER_SESSION_TIMEOUT_MS) / 1000
        self._believed_s = believed_s(config)
        self._now = asyncio.get_running_loop().time
        self._heard_at = -self._session_s  # when the last heartbeat that was answered had been sent
        self._deposed_at = -self._session_s  # as a controller; what was sent before that says nothing
        self._request: BrokerRegistrationRequest | None = None
        self._wake = asyncio.Event()
        self._leaving = False
        self._unfenced = asyncio.Event()
        self._let_go = asyncio.Event()
        self.broker_epoch = NO_BROKER_EPOCH

    @property
    def is_in_session(self) -> bool:
        if self._now() - self._heard_at >= self._session_s or self._heard_at <= self._deposed_at:
            return False
        return self._hears_majority(self._believed_s) is not False

    async def register(self, cluster_id: str, endpoints: Mapping[str, Endpoint]) -> None:
        """Until a controller has taken the registration. KafkaError when it may not be, or was not within
        `initial.broker.registration.timeout.ms`."""
        self._request = BrokerRegistrationRequest(
            broker_id=BrokerId(self._me),
            cluster_id=cluster_id,
            incarnation_id=self._incarnation,
            listeners=tuple(
                Listener(name=name, host=at.host, port=u16(at.port), security_protocol=i16(PROTOCOL_CODES[at.protocol]))
                for name, at in endpoints.items()
            ),
            features=(),
            rack=self._config(BROKER_RACK),
            log_dirs=tuple(one.directory_id for one in self._directories if one.failure is None),
            previous_broker_epoch=i64(self._previous_epoch()),
        )
        within_s = self._config(INITIAL_BROKER_REGISTRATION_TIMEOUT_MS) / 1000
        refusal = KafkaError(ErrorCode.not_controller, "there was no controller")
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        await self._register_once()
                        return
                    except KafkaError as reason:
                        refusal = reason
                        if reason.code not in AGAIN:
                            raise
                    logger.info("broker %d is not registered yet: %s", self._me, refusal)
                    await asyncio.sleep(self._interval_s)
        except TimeoutError:
            raise KafkaError(
                refusal.code, f"broker {self._me} could not register within {within_s:g} s: {refusal}"
            ) from None

    def _previous_epoch(self) -> int:
        """Under which nothing was lost: it stopped in order, or its machine has kept what it wrote. −1: something may have been."""
        stopped = min(one.previous_broker_epoch for one in self._directories)
        return self._last_life.epoch() if stopped == NO_BROKER_EPOCH else stopped

    async def run(self) -> None:
        """Heartbeats, until cancelled, let go or replaced."""
        while not self._let_go.is_set():
            sent_at = self._now()
            self._wake.clear()
            try:
                answer = await self._beat()
            except KafkaError as reason:
                logger.warning("the controller does not hear broker %d: %s", self._me, reason)
            else:
                if not await self._heard(answer, sent_at):
                    return
            soon = self._leaving or not self._unfenced.is_set()
            await self._pause(SOON_S if soon else sent_at + self._interval_s - self._now())

    async def wait_until_unfenced(self) -> None:
        """Returns when this broker may lead, and its own image says so."""
        await self._unfenced.wait()

    def send_heartbeat_now(self) -> None:
        """A new controller has heard nobody yet, and waits for that before it places anything."""
        self._wake.set()

    def on_controller_resigned(self) -> None:
        """This broker is the controller no longer: another one has to hear it now."""
        self._deposed_at = self._now()

    async def controlled_shutdown(self) -> None:
        """Before a stop, while everything is still served: returns when others lead what this broker led, or after a while in any case."""
        if not self._config(CONTROLLED_SHUTDOWN_ENABLE) or self.broker_epoch == NO_BROKER_EPOCH:
            return
        self._leaving = True
        self._wake.set()
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                while not self._let_go.is_set() and self._others_live():
                    await self._pause_until_let_go()
        except TimeoutError:
            logger.warning("broker %d stops without having been let go by the controller", self._me)

    def _others_live(self) -> bool:
        """Where all others have stopped before, nobody can take anything over, nor, mostly, commit that this broker goes."""
        return any(one.id != self._me for one in self._image.unfenced_brokers())

    async def _pause_until_let_go(self) -> None:
        try:
            async with asyncio.timeout(SOON_S):
                await self._let_go.wait()
        except TimeoutError:
            return

    async def _register_once(self) -> None:
        response: BrokerRegistrationResponse = await self._link.send_request(self._request)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, f"the controller refused it: {response.error_code.name}")
        await self._last_life.begins(response.broker_epoch)
        self.broker_epoch = response.broker_epoch
        for directory in self._directories:
            directory.broker_epoch = self.broker_epoch

    async def _beat(self) -> BrokerHeartbeatResponse:
        failed = [one.directory_id for one in self._directories if one.failure is not None]
        if failed != self._failed:
            await self._last_life.lost_something()
            self._failed = failed
        request = BrokerHeartbeatRequest(
            broker_id=BrokerId(self._me),
            broker_epoch=i64(self.broker_epoch),
            current_metadata_offset=i64(self._image.end_offset - 1),
            want_fence=len(failed) == len(self._directories),
            want_shut_down=self._leaving,
            offline_log_dirs=tuple(failed),
        )
        return cast(BrokerHeartbeatResponse, await self._link.send_request(request, within_s=self._session_s / 2))

    async def _heard(self, answer: BrokerHeartbeatResponse, sent_at: float) -> bool:
        """Whether to go on."""
        match answer.error_code:
            case ErrorCode.none:
                self._heard_at = -self._session_s if answer.is_fenced else sent_at
                self._stand(fenced=answer.is_fenced)
                if answer.should_shut_down:
                    self._let_go.set()
            case ErrorCode.stale_broker_epoch | ErrorCode.broker_id_not_registered as code:
                return await self._come_again(code)
            case code:
                logger.warning("the controller refuses broker %d's heartbeat: %s", self._me, code.name)
        return True

    def _stand(self, *, fenced: bool) -> None:
        known = self._image.brokers.get(self._me)
        if fenced or known is None or known.fenced:
            self._unfenced.clear()
        else:
            self._unfenced.set()

    async def _come_again(self, code: ErrorCode) -> bool:
        """The controller knows this broker under another epoch or not at all: it was taken out and registers anew, or it was replaced."""
        known = self._image.brokers.get(self._me)
        if known is not None and known.epoch > self.broker_epoch and known.incarnation != self._incarnation:
            self._heard_at = -self._session_s
            self._replaced(f"another process has registered as broker {self._me}; this one must go")
            return False
        if code is ErrorCode.stale_broker_epoch and known is not None and known.epoch <= self.broker_epoch:
            return True  # our image will tell who that is
        try:
            await self._register_once()
        except KafkaError as reason:
            logger.warning("broker %d cannot register again: %s", self._me, reason)
        return True

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._wake.wait()
        except TimeoutError:
            return
