"""The rest of a coroutine that was started outside of a task."""

import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def continue_coroutine(work: Coroutine[Any, Any, T], waits_for: object) -> T:
    """Goes on with `work`, whose first step has returned `waits_for`: the future that it waits
    for."""
    return await _steps(work, waits_for)


@types.coroutine
def _steps(work: Coroutine[Any, Any, T], waits_for: object) -> Generator[object, Any, T]:
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:  # noqa: BLE001  # raised where `work` waits
            raised: BaseException | None = error
        else:
            raised = None
        try:
            waits_for = work.send(sent) if raised is None else work.throw(raised)
        except StopIteration as end:
            result: T = end.value
            return result
