"""The stream of events of a search."""

from pathlib import Path

import pytest

from tests.unit.async_tests import async_test
from tests.unit.console.console_server import run_console


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionError("the connection to broker 2 is lost"), "the connection to broker 2 is lost"),
        (TimeoutError(), "a broker does not respond in time"),
    ],
)
@async_test
async def test_failure_of_a_broker_is_an_event_of_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, text: str
) -> None:
    async def find_ranges(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr("ottla_broker.console.messages.find_ranges", find_ranges)
    async with run_console(tmp_path) as console:
        answer = await console.get("/topics/t/messages/stream?value=x")
    assert answer.status == 200
    assert f'"error":"{text}"' in answer.text
