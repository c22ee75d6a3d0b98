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
from ottla_broker.metadata.previous_incarnation import PreviousIncarnation
from ottla_broker.metadata.quorum import leadership_timeout_s
from ottla_broker.metadata.records import Endpoint
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

NO_BROKER_EPOCH: Final = -1
FAST_HEARTBEAT_INTERVAL_S: Final = (
    0.05  # between heartbeats while something is to come of them: being unfenced, being let go
)
CONTROLLED_SHUTDOWN_TIMEOUT_S: Final = 10.0
SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
RETRIABLE_REGISTRATION_ERRORS: Final = frozenset({ErrorCode.not_controller, ErrorCode.duplicate_broker_registration})


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
        self._broker_id = config.node_id
        self._incarnation = incarnation
        self._image = image
        self._controller_channel = controller_channel
        self._directories = directories
        self._previous_incarnation = previous_incarnation
        self._failed_directories: list[UUID] = []
        self._hears_majority = hears_majority
        self._on_replaced = on_replaced
        self._interval_s = config(BROKER_HEARTBEAT_INTERVAL_MS) / 1000
        self._session_s = config(BROKER_SESSION_TIMEOUT_MS) / 1000
        self._leadership_timeout_s = leadership_timeout_s(config)
        self._now = asyncio.get_running_loop().time
        self._last_heartbeat_s = -self._session_s  # when the last heartbeat that was answered had been sent
        self._controller_resigned_s = -self._session_s  # as a controller; what was sent before that says nothing
        self._request: BrokerRegistrationRequest | None = None
        self._wake = asyncio.Event()
        self._is_shutting_down = False
        self._unfenced = asyncio.Event()
        self._may_stop = asyncio.Event()
        self.broker_epoch = NO_BROKER_EPOCH

    @property
    def is_in_session(self) -> bool:
        if (
            self._now() - self._last_heartbeat_s >= self._session_s
            or self._last_heartbeat_s <= self._controller_resigned_s
        ):
            return False
        return self._hears_majority(self._leadership_timeout_s) is not False

    async def register(self, cluster_id: str, endpoints: Mapping[str, Endpoint]) -> None:
        """Until a controller has taken the registration. KafkaError when it may not be, or was not within
        `initial.broker.registration.timeout.ms`."""
        self._request = BrokerRegistrationRequest(
            broker_id=BrokerId(self._broker_id),
            cluster_id=cluster_id,
            incarnation_id=self._incarnation,
            listeners=tuple(
                Listener(
                    name=name,
                    host=at.host,
                    port=u16(at.port),
                    security_protocol=i16(SECURITY_PROTOCOL_IDS[at.protocol]),
                )
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
                        if reason.code not in RETRIABLE_REGISTRATION_ERRORS:
                            raise
                    logger.info("broker %d is not registered yet: %s", self._broker_id, refusal)
                    await asyncio.sleep(self._interval_s)
        except TimeoutError:
            raise KafkaError(
                refusal.code, f"broker {self._broker_id} could not register within {within_s:g} s: {refusal}"
            ) from None

    def _previous_epoch(self) -> int:
        """Under which nothing was lost: it stopped in order, or its machine has kept what it wrote. −1: something may have been."""
        stopped = min(one.previous_broker_epoch for one in self._directories)
        return self._previous_incarnation.trusted_epoch() if stopped == NO_BROKER_EPOCH else stopped

    async def run(self) -> None:
        """Heartbeats, until cancelled, let go or replaced."""
        while not self._may_stop.is_set():
            sent_at = self._now()
            self._wake.clear()
            try:
                answer = await self._send_heartbeat()
            except KafkaError as reason:
                logger.warning("the controller does not hear broker %d: %s", self._broker_id, reason)
            else:
                if not await self._handle_response(answer, sent_at):
                    return
            soon = self._is_shutting_down or not self._unfenced.is_set()
            await self._pause(FAST_HEARTBEAT_INTERVAL_S if soon else sent_at + self._interval_s - self._now())

    async def wait_until_unfenced(self) -> None:
        """Returns when this broker may lead, and its own image says so."""
        await self._unfenced.wait()

    def send_heartbeat_now(self) -> None:
        """A new controller has heard nobody yet, and waits for that before it places anything."""
        self._wake.set()

    def on_controller_resigned(self) -> None:
        """This broker is the controller no longer: another one has to hear it now."""
        self._controller_resigned_s = self._now()

    async def controlled_shutdown(self) -> None:
        """Before a stop, while everything is still served: returns when others lead what this broker led, or after a while in any case."""
        if not self._config(CONTROLLED_SHUTDOWN_ENABLE) or self.broker_epoch == NO_BROKER_EPOCH:
            return
        self._is_shutting_down = True
        self._wake.set()
        try:
            async with asyncio.timeout(CONTROLLED_SHUTDOWN_TIMEOUT_S):
                while not self._may_stop.is_set() and self._are_others_unfenced():
                    await self._pause_until_may_stop()
        except TimeoutError:
            logger.warning("broker %d stops without having been let go by the controller", self._broker_id)

    def _are_others_unfenced(self) -> bool:
        """Where all others have stopped before, nobody can take anything over, nor, mostly, commit that this broker goes."""
        return any(one.id != self._broker_id for one in self._image.unfenced_brokers())

    async def _pause_until_may_stop(self) -> None:
        try:
            async with asyncio.timeout(FAST_HEARTBEAT_INTERVAL_S):
                await self._may_stop.wait()
        except TimeoutError:
            return

    async def _register_once(self) -> None:
        response: BrokerRegistrationResponse = await self._controller_channel.send_request(self._request)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, f"the controller refused it: {response.error_code.name}")
        await self._previous_incarnation.record_registration(response.broker_epoch)
        self.broker_epoch = response.broker_epoch
        for directory in self._directories:
            directory.broker_epoch = self.broker_epoch

    async def _send_heartbeat(self) -> BrokerHeartbeatResponse:
        failed = [one.directory_id for one in self._directories if one.failure is not None]
        if failed != self._failed_directories:
            await self._previous_incarnation.record_data_loss()
            self._failed_directories = failed
        request = BrokerHeartbeatRequest(
            broker_id=BrokerId(self._broker_id),
            broker_epoch=i64(self.broker_epoch),
            current_metadata_offset=i64(self._image.end_offset - 1),
            want_fence=len(failed) == len(self._directories),
            want_shut_down=self._is_shutting_down,
            offline_log_dirs=tuple(failed),
        )
        return cast(
            BrokerHeartbeatResponse, await self._controller_channel.send_request(request, within_s=self._session_s / 2)
        )

    async def _handle_response(self, answer: BrokerHeartbeatResponse, sent_at: float) -> bool:
        """Whether to go on."""
        match answer.error_code:
            case ErrorCode.none:
                self._last_heartbeat_s = -self._session_s if answer.is_fenced else sent_at
                self._update_fencing(fenced=answer.is_fenced)
                if answer.should_shut_down:
                    self._may_stop.set()
            case ErrorCode.stale_broker_epoch | ErrorCode.broker_id_not_registered as code:
                return await self._register_again(code)
            case code:
                logger.warning("the controller refuses broker %d's heartbeat: %s", self._broker_id, code.name)
        return True

    def _update_fencing(self, *, fenced: bool) -> None:
        known = self._image.brokers.get(self._broker_id)
        if fenced or known is None or known.fenced:
            self._unfenced.clear()
        else:
            self._unfenced.set()

    async def _register_again(self, code: ErrorCode) -> bool:
        """The controller knows this broker under another epoch or not at all: it was taken out and registers anew, or it was replaced."""
        known = self._image.brokers.get(self._broker_id)
        if known is not None and known.epoch > self.broker_epoch and known.incarnation != self._incarnation:
            self._last_heartbeat_s = -self._session_s
            self._on_replaced(f"another process has registered as broker {self._broker_id}; this one must go")
            return False
        if code is ErrorCode.stale_broker_epoch and known is not None and known.epoch <= self.broker_epoch:
            return True  # our image will tell who that is
        try:
            await self._register_once()
        except KafkaError as reason:
            logger.warning("broker %d cannot register again: %s", self._broker_id, reason)
        return True

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._wake.wait()
        except TimeoutError:
            return
