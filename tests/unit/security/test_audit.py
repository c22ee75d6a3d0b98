"""The audit log's lines: complete, in order, and bounded."""

import asyncio
import json
import logging

import pytest

from ottla_broker.security.audit import (
    MAX_LOGGED_LINES,
    MAX_QUEUED_LINES,
    AuditedResource,
    AuditEvent,
    BrokerLogAudit,
    FileAudit,
)
from tests.unit.async_tests import async_test


def event(number: int) -> AuditEvent:
    resource = AuditedResource("TOPIC", "orders")
    return AuditEvent(
        "2026-11-23T00:00:00.000Z",
        "User:alice",
        "10.0.0.7",
        "CLIENTS",
        "me",
        "Produce",
        number,
        "WRITE",
        resource,
        "denied",
    )


def numbers_of(lines: list[str]) -> list[int]:
    return [json.loads(line)["correlationId"] for line in lines if "correlationId" in line]


class SlowFile:
    """A file that accepts data when `is_writable` is set. `failures_left`: how many of the next
    appends raise OSError.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_writable = asyncio.Event()
        self.failures_left = 0

    async def append(self, data: bytes) -> None:
        await self.is_writable.wait()
        if self.failures_left:
            self.failures_left -= 1
            raise OSError(28, "No space left on device")
        self.lines += data.decode().splitlines()


@async_test
async def test_all_lines_are_in_the_file_in_order_when_the_audit_log_is_closed() -> None:
    file = SlowFile()
    audit = FileAudit(file.append)
    for number in range(5):
        audit.record(event(number))
        await asyncio.sleep(0)
    file.is_writable.set()
    audit.record(event(5))
    await audit.close()
    assert numbers_of(file.lines) == list(range(6))
    assert json.loads(file.lines[0]) == {
        "time": "2026-11-23T00:00:00.000Z",
        "principal": "User:alice",
        "host": "10.0.0.7",
        "listener": "CLIENTS",
        "clientId": "me",
        "request": "Produce",
        "correlationId": 0,
        "operation": "WRITE",
        "resource": {"type": "TOPIC", "name": "orders"},
        "result": "denied",
    }


@async_test
async def test_lines_that_find_no_room_are_counted_and_the_file_says_so() -> None:
    file = SlowFile()
    audit = FileAudit(file.append)
    for number in range(MAX_QUEUED_LINES + 7):
        audit.record(event(number))
    assert audit.dropped == 7
    file.is_writable.set()
    await audit.close()
    assert numbers_of(file.lines) == list(range(MAX_QUEUED_LINES))
    assert json.loads(file.lines[-1]) == {"droppedLines": 7}


@async_test
async def test_file_that_cannot_be_written_loses_its_lines_and_later_ones_are_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = SlowFile()
    file.is_writable.set()
    file.failures_left = 1
    audit = FileAudit(file.append)
    audit.record(event(1))
    await audit.close()
    audit.record(event(2))
    await audit.close()
    assert numbers_of(file.lines) == [2] and audit.dropped == 1
    assert "audit.log.path" in caplog.text and "No space left on device" in caplog.text


@async_test
async def test_brokers_log_takes_a_bounded_number_of_lines_in_a_second(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    audit = BrokerLogAudit(lambda: now_s)
    with caplog.at_level(logging.INFO, "ottla_broker.security.audit"):
        for number in range(MAX_LOGGED_LINES + 3):
            audit.record(event(number))
        assert audit.dropped == 3
        now_s = 101.0
        audit.record(event(5000))
    lines = [record.getMessage() for record in caplog.records]
    assert numbers_of(lines) == [*range(MAX_LOGGED_LINES), 5000]
    assert json.loads(lines[-2]) == {"droppedLines": 3}
