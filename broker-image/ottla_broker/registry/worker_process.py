"""The worker process that parses and compares schemas: one per broker, started when first needed.

A request that takes longer than REQUEST_TIMEOUT_S ends the process, as one that needs too much
memory may do. Its schema is treated as invalid; the next request starts another process. Requests
are processed one at a time, and never block the event loop.
"""

import asyncio
import logging
import sys
from contextlib import suppress
from typing import Final

import msgspec

from ottla_broker.registry.errors import invalid_schema, operation_timed_out
from ottla_broker.registry.worker_messages import LENGTH, WorkerRequest, WorkerResponse

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0
MAX_WAITING: Final = 256
"""Requests that wait for the worker; more are refused."""


class SchemaWorker:
    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def send(self, request: WorkerRequest) -> WorkerResponse:
        """The worker's response. Raises RegistryError for an invalid schema, and when MAX_WAITING
        requests wait.
        """
        if self._waiting >= MAX_WAITING:
            raise operation_timed_out(f"{MAX_WAITING} requests wait for schemas to be parsed")
        self._waiting += 1
        try:
            async with self._lock:
                response = await self._send(msgspec.msgpack.encode(request))
        finally:
            self._waiting -= 1
        if response.error:
            raise invalid_schema(response.error)
        return response

    async def _send(self, request: bytes) -> WorkerResponse:
        try:
            process = await self._ensure_process()
            assert process.stdin is not None and process.stdout is not None
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                process.stdin.write(LENGTH.pack(len(request)) + request)
                await process.stdin.drain()
                head = await process.stdout.readexactly(LENGTH.size)
                return msgspec.msgpack.decode(
                    await process.stdout.readexactly(*LENGTH.unpack(head)), type=WorkerResponse
                )
        except TimeoutError:
            await self._kill()
            logger.warning(
                "ended the schema worker: a request of %d bytes took %.0f s", len(request), REQUEST_TIMEOUT_S
            )
            raise invalid_schema(f"it takes longer than {REQUEST_TIMEOUT_S:.0f} s to process") from None
        except (OSError, asyncio.IncompleteReadError):
            await self._kill()
            logger.warning("the schema worker did not start, or ended during a request of %d bytes", len(request))
            raise invalid_schema("its processing failed, probably because it needs too much memory") from None
        except asyncio.CancelledError:  # the next request would get this one's response
            await self._kill()
            raise

    async def _ensure_process(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ottla_broker.registry.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def close(self) -> None:
        await self._kill()
