"""The worker process of one search: started, fed with batches, and ended with the search."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

import msgspec

from ottla_broker.console.requests import PageError
from ottla_broker.console.search_messages import (
    LENGTH,
    AddSchemas,
    FinishExport,
    ScanRecords,
    SearchRequest,
    SearchResponse,
    StartSearch,
)
from ottla_broker.registry.schema import SchemaSource

REQUEST_TIMEOUT_S: Final = 30.0
"""Time for the records of one fetch: a search whose filter needs longer is ended."""

FindSchemas = Callable[[Sequence[int]], Awaitable[dict[int, SchemaSource | None]]]


class SearchProcess:
    """`async with` starts the process with the request `start`, and ends it. Entering raises
    PageError for an invalid filter. `find_schemas`: finds the schemas of the ids that the process
    asks for.
    """

    def __init__(self, start: StartSearch, find_schemas: FindSchemas) -> None:
        self._start = start
        self._find_schemas = find_schemas
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "SearchProcess":
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ottla_broker.console.search_worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Linux shares processors between sessions first (autogroups, sched(7)), and within a
            # session by niceness. In the broker's session the worker would use up the broker's
            # share where other programs keep all processors busy.
            start_new_session=True,
        )
        try:
            await self._send(self._start)
        except BaseException:
            await self._kill()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kill()

    @property
    def pid(self) -> int | None:
        """None before the process is started."""
        return None if self._process is None else self._process.pid

    async def scan(self, request: ScanRecords) -> SearchResponse:
        """Scans batches, with the schemas that they need. Raises PageError: the filter takes too
        long or too much memory, a batch is corrupt, or the registry cannot be loaded.
        """
        response = await self._send(request)
        if response.unknown_ids:
            await self._send(AddSchemas(await self._find_schemas(response.unknown_ids)))
            response = await self._send(request)
        return response

    async def finish_export(self) -> bytes:
        """The end of the file. Raises PageError."""
        return (await self._send(FinishExport())).exported

    async def _send(self, request: SearchRequest) -> SearchResponse:
        data = msgspec.msgpack.encode(request)
        assert self._process is not None
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                stdin.write(LENGTH.pack(len(data)))
                stdin.write(data)
                await stdin.drain()
                (size,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
                response = msgspec.msgpack.decode(await stdout.readexactly(size), type=SearchResponse)
        except TimeoutError:
            raise PageError(400, f"the filter took longer than {REQUEST_TIMEOUT_S:.0f} s for one fetch") from None
        except (OSError, asyncio.IncompleteReadError):
            raise PageError(400, "the search's process ended, probably because it needs too much memory") from None
        if response.error:
            raise PageError(400, response.error)
        return response

    async def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
