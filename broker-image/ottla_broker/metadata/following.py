"""Copying the metadata log from another broker, step by step: ask, cut off what is not there, append what is, bring it to the device.

The position that a step asks from is on this broker's device: to its leader, asking is acknowledging.
"""

import asyncio
import errno
from uuid import UUID

from ottla_broker.metadata.fetching import Ask, Told, request_of, told_of, where_to_cut
from ottla_broker.metadata.log import MetadataLog
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.errors import ErrorCode, KafkaError

CONNECT_WITHIN_S = 1.0
ANSWER_WITHIN_S = 2.0  # beyond the time that an answer may wait for news


class Copying:
    """Copies into `log`. `me`: this broker and its log directory; `cluster_id`: what both sides must belong to."""

    def __init__(self, log: MetadataLog, me: int, directory: UUID) -> None:
        self._log = log
        self._me = me
        self._directory = directory

    async def step(self, channel: Channel, epoch: int, max_wait_ms: int = 0) -> Told:
        """One question to a broker in `epoch`, and what follows from its answer; the answer. What is committed is applied.

        KafkaError: what the other side says, what the log says (KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR). ConnectionError,
        TimeoutError.
        """
        log = self._log
        position = await log.durable()
        ask = Ask(self._me, self._directory, epoch, position, log.high_watermark, max_wait_ms=max_wait_ms)
        async with asyncio.timeout(max_wait_ms / 1000 + ANSWER_WITHIN_S):
            told = told_of(await channel.ask(request_of(ask)))
        if told.error is not ErrorCode.none:
            raise KafkaError(told.error, f"the leader of the metadata log answers {told.error.name}")
        if told.diverging is not None:
            log.truncate(where_to_cut(log.log.epochs, log.log.end, told.diverging))
            if log.log.end >= position.end:
                raise KafkaError(ErrorCode.unknown_server_error, f"{told.diverging} parts from nothing of {position}")
        elif told.records:
            log.take(told.records, epoch)
        if told.diverging is None and told.high_watermark >= 0:
            log.advance(told.high_watermark)
        return told


async def connect(address: str, client_id: str) -> Channel:
    """`address`: host:port. OSError, of which `refused` knows the one that says that nobody is there; TimeoutError."""
    async with asyncio.timeout(CONNECT_WITHIN_S):
        return await open_channel(*host_and_port(address), client_id)


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def refused(error: BaseException) -> bool:
    """Whether a port is there and nobody listens: the process is gone."""
    return isinstance(error, ConnectionRefusedError) or (
        isinstance(error, OSError) and error.errno == errno.ECONNREFUSED
    )
