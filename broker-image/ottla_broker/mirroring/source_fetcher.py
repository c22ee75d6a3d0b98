"""One connection to one broker of a source, as a consumer has it, by which this broker fills the copies whose sources are led there.

One request is under way at a time; what it brought is taken in the turn of the loop in which it comes. What fails for one partition stops nobody
else: that one rests, longer each time, or is looked for at another broker.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol

from ottla_broker.mirroring import mirrored_partition
from ottla_broker.mirroring.mirror_config import FetchLimits
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, LastResponse, MirroredPartition
from ottla_broker.mirroring.session import LOST, SourceSession
from ottla_broker.mirroring.source_offsets import EARLIEST, LATEST, fetch_source_offset
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.replica_fetch import FETCH, FetchResponse, FetchResponsePartition, read_response

logger = logging.getLogger(__name__)

OLDEST: Final = 13  # of Fetch, since which topics are named by id
NEWEST: Final = 17
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
ANSWER_WITHIN_S: Final = 10.0  # beyond the time that a fetch may wait


class Home(Protocol):
    """What a fetcher needs of its mirror."""

    @property
    def pace(self) -> FetchLimits: ...
    @property
    def client_id(self) -> str: ...
    @property
    def secured(self) -> ClientSecurity: ...

    def held_back_s(self) -> float:
        """How long a throttle lets nothing more be fetched."""
        ...

    def took(self, size: int) -> None: ...

    def elsewhere(self, copy: MirroredPartition, reason: str) -> None:
        """That broker does not lead it."""
        ...

    def learned(self, copy: MirroredPartition) -> None:
        """`copy.to_learn` is to be written down; it is fetched no further before."""
        ...

    def parted(self, copy: MirroredPartition) -> None: ...


class SourceFetcher:
    def __init__(self, broker: int, address: tuple[str, int], home: Home) -> None:
        self.broker = broker
        self.address = address
        self.session = SourceSession()
        self.sign_of_life = LastResponse()
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._running = self._loop.create_task(self._run(), name=f"mirror from {address[0]}:{address[1]}")

    def follow(self, copy: MirroredPartition) -> None:
        copy.last_response = self.sign_of_life
        self.session.follow(copy)
        self._wanted.set()

    def forget(self, copy: MirroredPartition) -> None:
        self.session.forget(copy)

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    # --- the connection

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._wanted.wait()
            try:
                await self._stay()
                pause_s = FIRST_PAUSE_S
                continue
            except (OSError, KafkaError, TimeoutError, MalformedMessage) as error:
                reason = str(error) or "no answer in time"
            logger.info("mirroring from broker %d at %s:%d: %s", self.broker, *self.address, reason)
            for copy in tuple(self.session.followed.values()):
                self.session.forget(copy)
                self._home.elsewhere(copy, reason)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _stay(self) -> None:
        """Until nothing is followed here any more, or the connection breaks."""
        async with asyncio.timeout(ANSWER_WITHIN_S):
            channel = await open_channel(*self.address, self._home.client_id, security=self._home.secured)
        try:
            version = self._version(channel)
            self.session.begin()
            while self.session.followed:
                if (held_s := self._home.held_back_s()) > 0:
                    await asyncio.sleep(held_s)
                    continue
                request = self.session.next_request(self._loop.time(), self._home.pace)
                if request is None:
                    await self._rest()
                    continue
                async with asyncio.timeout(ANSWER_WITHIN_S + self._home.pace.max_wait_ms / 1000):
                    frame = await channel.send_in_version(FETCH, version, request)
                self.sign_of_life.received_s = self._loop.time()
                self._home.took(len(frame))
                await self._heard(channel, read_response(frame))
            self._wanted.clear()
        finally:
            channel.close()

    def _version(self, channel: Channel) -> int:
        low, high = channel.versions.get(FETCH, (0, -1))
        version = min(high, NEWEST)
        if version < max(low, OLDEST):
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"the source speaks Fetch in versions {low} to {high}; mirroring needs {OLDEST}, which Apache Kafka has since 3.1",
            )
        return version

    async def _rest(self) -> None:
        """Everything rests: until the first may be asked for again, or another is followed."""
        until_s = self.session.next_rest_s()
        self._wanted.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._wanted.wait()
        self._wanted.set()

    # --- hearing

    async def _heard(self, channel: Channel, response: FetchResponse) -> None:
        if response.error is not ErrorCode.none and response.error not in LOST:
            raise KafkaError(response.error, f"it answers {response.error.name}")
        for copy, got in self.session.heard(response):
            if copy.is_leader:
                await self._take(channel, copy, got)
            else:
                self.session.forget(copy)

    async def _take(self, channel: Channel, copy: MirroredPartition, got: FetchResponsePartition) -> None:
        try:
            outcome = mirrored_partition.process_partition_data(copy, got, self._loop.time())
            if outcome is FetchOutcome.out_of_range:
                outcome = await self._find_range(channel, copy)
        except KafkaError as reason:
            logger.warning("%r cannot be mirrored: %s", copy.partition, reason)
            outcome = FetchOutcome.retriable_error
        match outcome:
            case FetchOutcome.unchanged | FetchOutcome.advanced:
                copy.retry_pause_s = 0.0
                if outcome is FetchOutcome.advanced:
                    self.session.ask_on(copy)
            case FetchOutcome.retriable_error:
                self._rest_longer(copy)
                self.session.ask_on(copy)
            case FetchOutcome.not_leader:
                self._rest_longer(copy)  # or what one broker says, and another does not, would be asked again and again
                self.session.forget(copy)
                self._home.elsewhere(copy, f"broker {self.broker} says {got.error.name}")
            case FetchOutcome.new_epochs:
                self.session.forget(copy)
                self._home.learned(copy)
            case _:
                self.session.forget(copy)
                self._home.parted(copy)

    def _rest_longer(self, copy: MirroredPartition) -> None:
        copy.retry_pause_s = min(copy.retry_pause_s * 2 or FIRST_PAUSE_S, LONGEST_PAUSE_S)
        copy.retry_at_s = self._loop.time() + copy.retry_pause_s

    async def _find_range(self, channel: Channel, copy: MirroredPartition) -> FetchOutcome:
        """Our offset is not in the source's log: asks where that starts and ends."""
        asked = copy.position
        async with asyncio.timeout(ANSWER_WITHIN_S):
            start = await fetch_source_offset(channel, copy, EARLIEST)
            end = await fetch_source_offset(channel, copy, LATEST)
        if not copy.is_leader or copy.position != asked:
            return FetchOutcome.advanced
        return copy.offset_policy.handle_out_of_range(copy, start, end)
