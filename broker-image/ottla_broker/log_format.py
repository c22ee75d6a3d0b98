"""The lines of a log: text, or one JSON object each (`--log-format json`).

A line of JSON has `time` (RFC 3339, UTC), `level`, `logger`, `message`, `exception` (a traceback)
and the fields of what the line is about: those of `log_fields` around the code that logs, such as
the correlation id of a request. A line of the audit log has its event as `audit`, in place of the
message. What looks like a password, a secret or a private key is masked in messages and tracebacks.
In JSON, `audit` and the fields are not masked.
"""

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Literal, TextIO

import msgspec

logger = logging.getLogger(__name__)

LogFormat = Literal["text", "json"]
LOG_FORMATS: Final[tuple[LogFormat, ...]] = ("text", "json")
TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
AUDIT_LOGGER: Final = "ottla_broker.security.audit"
MASK: Final = "***"
_NAMED_SECRET: Final = re.compile(
    r"""(?ix) ( [\w.-]* (?: password | passwd | secret | jaas\.config | keystore\.key | access[._-]?key ) )
    ( ["']? \s* [=:] \s* ) ( "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;\]})&]+ )"""
)
_SECRET_WORDS: Final = ("password", "passwd", "secret", "jaas", "keystore", "access")
"""Each match of the expression has one of these."""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL)

_fields: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039  # never modified
_process_fields: dict[str, object] = {}
_formatter: logging.Formatter = logging.Formatter(TEXT)


def configure_logging(format_: LogFormat, level: str) -> None:
    """Logs to standard error, from now on."""
    global _formatter
    _formatter = JsonFormatter() if format_ == "json" else TextFormatter(TEXT)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if format_ == "json":
        sys.excepthook = log_exception


def log_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Logs the exception that ends the process."""
    logger.critical("ended by an unexpected error", exc_info=(kind, error, traceback))


def is_json() -> bool:
    """True if the log is JSON, whose lines have fields."""
    return isinstance(_formatter, JsonFormatter)


def print_line(text: str, file: TextIO | None = None, *, level: int = logging.INFO) -> None:
    """Prints a line that is not a log message, such as why a broker does not start; in the log's
    format if that is JSON.
    """
    if is_json():
        text = _formatter.format(logging.LogRecord("ottla", level, "", 0, text, (), None))
    print(text, file=file or sys.stdout, flush=True)


def add_process_fields(**fields: object) -> None:
    """Adds fields that every line of a JSON log has, such as the broker's id."""
    _process_fields.update(fields)


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Lines that the block logs, in the tasks that it starts too, have these fields besides those
    around it. A field whose value is None is left out.
    """
    new_fields = {name: value for name, value in fields.items() if value is not None}
    token = _fields.set({**_fields.get(), **new_fields})
    try:
        yield
    finally:
        _fields.reset(token)


def mask_secrets(text: str) -> str:
    """Masks values after names such as `sasl.password=`, and private keys in PEM."""
    masked = _PRIVATE_KEY.sub(rf"-----BEGIN \1-----{MASK}", text) if "-----BEGIN" in text else text
    # The expression takes 70 µs for an ordinary line, which has none of the words that it needs.
    folded = masked.casefold()
    if not any(word in folded for word in _SECRET_WORDS):
        return masked
    return _NAMED_SECRET.sub(rf"\1\2{MASK}", masked)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
        }
        if record.name == AUDIT_LOGGER and is_json_object(message):
            line["audit"] = msgspec.Raw(message.encode())
        else:
            line["message"] = mask_secrets(message)
        if record.exc_info:
            line["exception"] = mask_secrets(self.formatException(record.exc_info))
        fields = {**_process_fields, **_fields.get()}
        line |= {name: value for name, value in fields.items() if name not in line}
        return msgspec.json.encode(line, enc_hook=str).decode()


def is_json_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False
