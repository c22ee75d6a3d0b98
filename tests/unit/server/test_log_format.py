"""Log lines as JSON, with the fields of what they are about, and without secrets."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from ottla_broker.log_format import (
    AUDIT_LOGGER,
    JsonFormatter,
    TextFormatter,
    configure_logging,
    log_fields,
    mask_secrets,
    print_line,
)


class Lines:
    """A logger, and the lines that it has written."""

    def __init__(self, formatter: logging.Formatter, name: str = "ottla_broker.test") -> None:
        self._stream = StringIO()
        handler = logging.StreamHandler(self._stream)
        handler.setFormatter(formatter)
        self.logger = logging.Logger(name)
        self.logger.addHandler(handler)

    @property
    def texts(self) -> list[str]:
        return self._stream.getvalue().splitlines()

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.texts]


@pytest.fixture
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, hook = root.handlers[:], root.level, sys.excepthook
    yield
    sys.excepthook = hook
    configure_logging("text", "warning")
    root.handlers[:] = handlers
    root.setLevel(level)


def test_line_is_one_json_object_whatever_the_message_contains() -> None:
    lines = Lines(JsonFormatter())
    lines.logger.warning('two\nlines, "quotes" and %s', "\x1b[31mred\x1b[0m")
    (line,) = lines.json
    assert (line["level"], line["logger"]) == ("WARNING", "ottla_broker.test")
    assert line["message"] == 'two\nlines, "quotes" and \x1b[31mred\x1b[0m'
    assert line["time"].endswith("Z") and len(line["time"]) == len("2026-11-27T02:00:00.000Z")


def test_traceback_is_a_field() -> None:
    lines = Lines(JsonFormatter())
    try:
        raise ValueError("password=hunter2")
    except ValueError:
        lines.logger.exception("cannot")
    (line,) = lines.json
    assert line["message"] == "cannot"
    assert line["exception"].endswith("ValueError: password=***")


def test_fields_that_are_set_around_code_are_in_lines_of_the_code_and_of_its_tasks() -> None:
    lines = Lines(JsonFormatter())

    async def serve(number: int) -> None:
        with log_fields(correlationId=number, clientId=None):
            await asyncio.sleep(0)
            lines.logger.info("served")
            await asyncio.create_task(finish())

    async def finish() -> None:
        lines.logger.info("finished")

    async def scenario() -> None:
        with log_fields(node=1, level="not this one"):
            await asyncio.gather(serve(7), serve(8))
        lines.logger.info("after")

    asyncio.run(scenario())
    found = [(line["message"], line.get("node"), line.get("correlationId")) for line in lines.json]
    assert sorted(found[:-1]) == [("finished", 1, 7), ("finished", 1, 8), ("served", 1, 7), ("served", 1, 8)]
    assert found[-1] == ("after", None, None)
    assert {line["level"] for line in lines.json} == {"INFO"}
    assert all("clientId" not in line for line in lines.json)


def test_event_of_the_audit_log_is_an_object() -> None:
    lines = Lines(JsonFormatter(), AUDIT_LOGGER)
    lines.logger.info('{"principal":"User:alice","result":"denied"}')
    lines.logger.info("not JSON")
    event, other = lines.json
    assert event["audit"] == {"principal": "User:alice", "result": "denied"} and "message" not in event
    assert other["message"] == "not JSON"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("sasl.password=hunter2, next=1", "sasl.password=***, next=1"),
        ('{"ssl.keystore.key": "hunter2 \\" more", "a": 1}', '{"ssl.keystore.key": ***, "a": 1}'),
        ("PASSWORD : 'hunter2'", "PASSWORD : ***"),
        ("url?secret=hunter2&x=1", "url?secret=***&x=1"),
        ('sasl.jaas.config=x required username="a" password="hunter2";', None),
        ("AWS_SECRET_ACCESS_KEY=hunter2", "AWS_SECRET_ACCESS_KEY=***"),
        ("s3.access-key: hunter2", "s3.access-key: ***"),
        ("http.passwd=hunter2", "http.passwd=***"),
        ("pa\u017f\u017fword=hunter2", "pa\u017f\u017fword=***"),
        (
            "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\na",
            "-----BEGIN PRIVATE KEY-----***\na",
        ),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2 cut off", "-----BEGIN RSA PRIVATE KEY-----***"),
        ("the password is wrong", "the password is wrong"),
        ("secrets/broker-1 is missing", "secrets/broker-1 is missing"),
    ],
)
def test_secrets_are_masked_in_both_formats(text: str, masked: str | None) -> None:
    assert "hunter2" not in mask_secrets(text)
    if masked is not None:
        assert mask_secrets(text) == masked
    for formatter in (TextFormatter("%(message)s"), JsonFormatter()):
        lines = Lines(formatter)
        lines.logger.error("%s", text)
        assert "hunter2" not in "".join(lines.texts)


@pytest.mark.usefixtures("restore_logging")
def test_lines_that_are_no_log_messages_have_the_format_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "info")
    print_line("ottla broker 1 ready")
    configure_logging("json", "info")
    print_line("ottla broker: no such file", sys.stderr, level=logging.ERROR)
    logging.getLogger("ottla").info("hello")
    sys.excepthook(OSError, OSError("no space left"), None)
    out, err = capsys.readouterr()
    assert out == "ottla broker 1 ready\n"
    first, second, third = (json.loads(line) for line in err.splitlines())
    assert (first["level"], first["message"]) == ("ERROR", "ottla broker: no such file")
    assert (second["level"], second["message"]) == ("INFO", "hello")
    assert (third["level"], third["exception"]) == ("CRITICAL", "OSError: no space left")
