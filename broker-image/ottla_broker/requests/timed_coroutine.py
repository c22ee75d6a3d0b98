"""Measures how long a coroutine keeps the loop's thread, without the time that it waits."""

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class TimedCoroutine(Coroutine[Any, Any, T]):
    """Runs `work`, and calls `on_step` with the seconds of each of its steps, except steps that
    begin with an exception.
    """

    __slots__ = ("_clock", "_on_step", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, T], clock: Callable[[], float], on_step: Callable[[float], None]
    ) -> None:
        self._work = work
        self._clock = clock
        self._on_step = on_step

    def send(self, value: Any) -> Any:
        began_s = self._clock()
        try:
            return self._work.send(value)
        finally:
            self._on_step(self._clock() - began_s)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        assert isinstance(typ, BaseException), "asyncio throws instances"
        return self._work.throw(typ)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()
