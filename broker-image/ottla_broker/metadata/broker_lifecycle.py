"""A broker's registration, heartbeats and controlled shutdown (BrokerRegistration,
BrokerHeartbeat).

`is_in_session` implements rule 6: the broker stops serving coordinator reads before its session
expires at the controller. The session is counted from the time at which the last answered heartbeat
was sent, and a fenced broker has none. A controller that hears from no majority of the metadata
log's voters answers no heartbeats, not even its own: its successor may have been elected. The
successor fences it first, so a heartbeat that a controller has answered itself counts only while it
leads.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, cast
from uuid import UUID

from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v1.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4.request import Listener
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i16, i64, u16

from ottla_broker.config import (
    BROKER_HEARTBEAT_INTERVAL_MS,
    BROKER_NODE,
    BROKER_RACK,
    BROKER_SESSION_TIMEOUT_MS,
    CONTROLLED_SHUTDOWN_ENABLE,
    INITIAL_BROKER_REGISTRATION_TIMEOUT_MS,
    Config,
)
from ottla_broker.event_timeout import wait_for_event
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.previous_incarnation import PreviousIncarnation
from ottla_broker.metadata.quorum import leadership_timeout_s
from ottla_broker.metadata.records import Endpoint
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.registration_message import OttlaBrokerRegistrationRequest

logger = logging.getLogger(__name__)

NO_BROKER_EPOCH: Final = -1
FAST_HEARTBEAT_INTERVAL_S: Final = 0.05  # while the broker waits to be unfenced or to shut down
CONTROLLED_SHUTDOWN_TIMEOUT_S: Final = 10.0
SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
RETRIABLE_REGISTRATION_ERRORS: Final = frozenset({ErrorCode.not_controller, ErrorCode.duplicate_broker_registration})


class Directory(Protocol):
    """What a registration needs of a log directory. `previous_broker_epoch`: that of the previous
    incarnation after a clean shutdown, else NO_BROKER_EPOCH; `broker_epoch`: set when this broker
    has registered; `failure`: the reason why the directory has failed, None while it works.
    """

    directory_id: UUID
    previous_broker_epoch: int
    broker_epoch: int
    failure: str | None


class BrokerLifecycle:
    """`hears_majority(within_s)`: see `quorum.CommitLog`; None if this broker is not the
    controller. `on_replaced` is called when another process has registered with this broker's id,
    and this one has to stop."""

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
        self._last_heartbeat_s = -self._session_s  # send time of the last heartbeat that was answered
        self._controller_resigned_s = -self._session_s  # heartbeats sent before that do not count
        self._session_checked_s: float | None = None  # time of `_was_in_session`; None: out of date
        self._was_in_session = False
        self._request: OttlaBrokerRegistrationRequest | None = None
        self._wake = asyncio.Event()
        self._is_shutting_down = False
        self._unfenced = asyncio.Event()
        self._may_stop = asyncio.Event()
        self.broker_epoch = NO_BROKER_EPOCH

    @property
    def is_in_session(self) -> bool:
        """False if this broker is fenced or may be fenced without knowing it (rule 6). Evaluated
        once for each value of the event loop's clock, because each request of a group reads it."""
        now_s = self._now()
        if now_s != self._session_checked_s:
            self._was_in_session, self._session_checked_s = self._check_session(now_s), now_s
        return self._was_in_session

    def _check_session(self, now_s: float) -> bool:
        is_expired = now_s - self._last_heartbeat_s >= self._session_s
        if is_expired or self._last_heartbeat_s <= self._controller_resigned_s:
            return False
        return self._hears_majority(self._leadership_timeout_s) is not False

    async def register(self, cluster_id: str, endpoints: Mapping[str, Endpoint]) -> None:
        """Returns when the controller has registered this broker. Raises KafkaError when it rejects
        the registration, or at `initial.broker.registration.timeout.ms`."""
        self._request = self._registration_request(cluster_id, endpoints)
        timeout_s = self._config(INITIAL_BROKER_REGISTRATION_TIMEOUT_MS) / 1000
        last_error = KafkaError(ErrorCode.not_controller, "there was no controller")
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        await self._register_once()
                        return
                    except KafkaError as reason:
                        last_error = reason
                        if reason.code not in RETRIABLE_REGISTRATION_ERRORS:
                            raise
                    logger.info("broker %d is not registered yet: %s", self._broker_id, last_error)
                    await asyncio.sleep(self._interval_s)
        except TimeoutError:
            raise KafkaError(
                last_error.code, f"broker {self._broker_id} could not register within {timeout_s:g} s: {last_error}"
            ) from None

    def _registration_request(
        self, cluster_id: str, endpoints: Mapping[str, Endpoint]
    ) -> OttlaBrokerRegistrationRequest:
        return OttlaBrokerRegistrationRequest(
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
            log_dirs=tuple(directory.directory_id for directory in self._directories if directory.failure is None),
            previous_broker_epoch=i64(self._previous_epoch()),
            node=self._config(BROKER_NODE),
        )

    def _previous_epoch(self) -> int:
        """The broker epoch of the previous incarnation if it lost no records: after a clean
        shutdown, or if the machine has not restarted since. Else −1."""
        clean_epoch = min(directory.previous_broker_epoch for directory in self._directories)
        return self._previous_incarnation.read_trusted_epoch() if clean_epoch == NO_BROKER_EPOCH else clean_epoch

    async def run(self) -> None:
        """Sends heartbeats until cancelled, allowed to stop, or replaced."""
        while not self._may_stop.is_set():
            sent_s = self._now()
            self._wake.clear()
            try:
                response = await self._send_heartbeat()
            except KafkaError as reason:
                logger.warning("heartbeat of broker %d failed: %s", self._broker_id, reason)
            else:
                if not await self._handle_response(response, sent_s):
                    return
            is_waiting = self._is_shutting_down or not self._unfenced.is_set()
            pause_s = FAST_HEARTBEAT_INTERVAL_S if is_waiting else sent_s + self._interval_s - self._now()
            await wait_for_event(self._wake, max(pause_s, 0))

    async def wait_until_unfenced(self) -> None:
        """Returns when this broker is unfenced in its own image."""
        await self._unfenced.wait()

    def send_heartbeat_now(self) -> None:
        """Wakes the loop that sends heartbeats: a new controller places no partition before it has
        a heartbeat of every broker.
        """
        self._wake.set()

    def on_controller_resigned(self) -> None:
        """Called when this broker is no longer the controller. Its session starts with a heartbeat
        to the next controller.
        """
        self._controller_resigned_s = self._now()
        self._session_checked_s = None

    async def controlled_shutdown(self) -> None:
        """Requests a controlled shutdown while requests are still served. Returns when the
        controller allows the stop, when no other broker is unfenced, or after
        `CONTROLLED_SHUTDOWN_TIMEOUT_S`. Does nothing without controlled.shutdown.enable, or before
        the broker has registered.
        """
        if not self._config(CONTROLLED_SHUTDOWN_ENABLE) or self.broker_epoch == NO_BROKER_EPOCH:
            return
        self._is_shutting_down = True
        self._wake.set()
        try:
            async with asyncio.timeout(CONTROLLED_SHUTDOWN_TIMEOUT_S):
                while not self._may_stop.is_set() and self._are_others_unfenced():
                    await wait_for_event(self._may_stop, FAST_HEARTBEAT_INTERVAL_S)
        except TimeoutError:
            logger.warning("controlled shutdown of broker %d timed out", self._broker_id)

    def _are_others_unfenced(self) -> bool:
        """False when no other broker is left to lead this broker's partitions."""
        return any(broker.id != self._broker_id for broker in self._image.unfenced_brokers())

    async def _register_once(self) -> None:
        response: BrokerRegistrationResponse = await self._controller_channel.send_request(self._request)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(
                response.error_code, f"the controller rejected the registration: {response.error_code.name}"
            )
        await self._previous_incarnation.record_registration(response.broker_epoch)
        self.broker_epoch = response.broker_epoch
        for directory in self._directories:
            directory.broker_epoch = self.broker_epoch

    async def _send_heartbeat(self) -> BrokerHeartbeatResponse:
        failed = [directory.directory_id for directory in self._directories if directory.failure is not None]
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
        response = await self._controller_channel.send_request(request, timeout_s=self._session_s / 2)
        return cast(BrokerHeartbeatResponse, response)

    async def _handle_response(self, response: BrokerHeartbeatResponse, sent_s: float) -> bool:
        """Returns False if no more heartbeats must be sent."""
        match response.error_code:
            case ErrorCode.none:
                self._last_heartbeat_s = -self._session_s if response.is_fenced else sent_s
                self._session_checked_s = None
                self._update_fencing(fenced=response.is_fenced)
                if response.should_shut_down:
                    self._may_stop.set()
            case ErrorCode.stale_broker_epoch | ErrorCode.broker_id_not_registered as code:
                return await self._register_again(code)
            case code:
                logger.warning("the controller rejected the heartbeat of broker %d: %s", self._broker_id, code.name)
        return True

    def _update_fencing(self, *, fenced: bool) -> None:
        known = self._image.brokers.get(self._broker_id)
        if fenced or known is None or known.fenced:
            self._unfenced.clear()
        else:
            self._unfenced.set()

    async def _register_again(self, code: ErrorCode) -> bool:
        """Called when the controller does not know this broker's id or epoch. Registers again if
        the broker was unregistered. Returns False if another process has replaced it.
        """
        known = self._image.brokers.get(self._broker_id)
        if known is not None and known.epoch > self.broker_epoch and known.incarnation != self._incarnation:
            self._last_heartbeat_s, self._session_checked_s = -self._session_s, None
            self._on_replaced(f"another process has registered as broker {self._broker_id}")
            return False
        if code is ErrorCode.stale_broker_epoch and known is not None and known.epoch <= self.broker_epoch:
            return True  # the image does not show the other registration yet
        try:
            await self._register_once()
        except KafkaError as reason:
            logger.warning("broker %d failed to register again: %s", self._broker_id, reason)
        return True
