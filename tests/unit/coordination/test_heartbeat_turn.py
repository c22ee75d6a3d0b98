"""Heartbeats of many groups that are served in one turn of the event loop."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from ottla_broker.coordination.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from ottla_broker.coordination.heartbeat_turn import HeartbeatOutcome, HeartbeatTurn, WaitingHeartbeat
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test

RESULT = HeartbeatResult("m", 1)


@async_test
async def test_defect_of_one_group_is_reported_and_others_run() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    outcomes: dict[str, HeartbeatOutcome] = {}

    def run_heartbeats(group_id: str, waiting: Sequence[WaitingHeartbeat]) -> None:
        if group_id == "defective":
            raise ArithmeticError
        waiting[0].complete(RESULT)

    turn = HeartbeatTurn(run_heartbeats)
    for group_id in ("defective", "other"):
        complete = partial(outcomes.__setitem__, group_id)
        turn.add(group_id, WaitingHeartbeat(ConsumerHeartbeat("m", 1), complete))
    await asyncio.sleep(0)
    error = outcomes["defective"]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.unknown_server_error
    assert outcomes["other"] is RESULT
    assert [type(context["exception"]) for context in reported] == [ArithmeticError]
