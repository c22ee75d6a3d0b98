"""What a handler replies with: a response, or a future of one.

mypyc cannot compile these classes, because asyncio's futures are written in C (docs/compiled.md).
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any

from ottla_broker.same_turn import SameTurnFuture
from ottla_broker.wire.batch import Buffer

Buffers = Sequence[Buffer]
Reply = Buffers | Future[Buffers] | None
"""None: the client expects no response, or the function leaves the request to another one."""


class DeferredResponse(SameTurnFuture[Buffers]):
    """A response that comes later."""


class OrderedResponse(asyncio.Future[Buffers]):
    """A response to Produce that is not pipelined: the connection serves no further request before
    it is ready.
    """


class DelayedFetchResponse(DeferredResponse):
    """The response of a fetch that waits for records (Kafka's DelayedFetch).

    `force_complete` completes it with what there is now. `on_end` is called once, when it no longer
    waits. Both are dropped then: the response and its waiter would otherwise hold each other, and
    their records, until the garbage collector finds them.
    """

    def __init__(
        self, force_complete: Callable[[], None], on_end: Callable[[], None], *, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self.force_complete = force_complete
        self._on_end = on_end

    def complete(self, buffers: Buffers) -> None:
        self._end()
        super().complete(buffers)

    def cancel(self, msg: Any | None = None) -> bool:
        self._end()
        return super().cancel(msg)

    def _end(self) -> None:
        on_end, self.force_complete, self._on_end = self._on_end, _do_nothing, _do_nothing
        on_end()


def _do_nothing() -> None:
    pass
