"""Errors that a person can act on, and their texts from the errors of Spark, Java and Python."""

from __future__ import annotations

import re
from typing import Final


class PipelineError(Exception):
    """The pipeline cannot run. The text is one sentence: what is wrong, where, and what would be
    right.
    """


class BrokersUnavailable(PipelineError):
    """Brokers did not answer a request in time. A later one may succeed."""


class MissingDependency(PipelineError):
    """Java, PySpark or another package that the pipeline needs is not installed; retrying does not
    help.
    """


_MARKED_MESSAGE: Final = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*\[OTTLA\](?P<message>.*?)\[/OTTLA\]", re.DOTALL)
# The error follows the frames of a traceback, which are indented.
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(?P<error>\S.*)")
_OWN_ERROR: Final = "ottla_spark.errors.PipelineError: "
_CLASS_PREFIX: Final = re.compile(r"^(?:[a-zA-Z_$][\w$]*\.)+[A-Z]\w*(?:Exception|Error):\s*")
_ERROR_CLASS: Final = re.compile(r"(?P<name>(?:[a-zA-Z_$][\w$]*\.)*[A-Z][\w$]*(?:Exception|Error))(?::|\s|$)")
_CALL: Final = re.compile(r"^An error occurred while calling \S+ : ")
_SPARK_CLASS: Final = re.compile(r"^\[(?P<name>[A-Z_.0-9]+)\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_WHERE_IN_SQL: Final = re.compile(r"[.;\s]*; (?P<at>line \d+),? (?P<pos>pos \d+)$")
_NO_COLUMN: Final = re.compile(
    r"A column, variable, or function parameter with name (?P<name>\S+) cannot be resolved\.?"
    r"(?: Did you mean one of the following\? \[(?P<near>[^\]]*)\])?"
)
_NO_TABLE: Final = re.compile(r"The table or view (?P<name>\S+) cannot be found\.?")
_MAX_LENGTH: Final = 1000

# Text in an error of Spark or Java → what it means for the pipeline. The first match wins.
_MEANINGS: Final[tuple[tuple[str, str], ...]] = (
    (
        "Some data may have been lost because they are not available",
        "records were deleted from the topic before they were read (by retention, or the topic was re-created); "
        "set onDataLoss: continue to skip them, or start with a new checkpoint",
    ),
    (
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
        "the checkpoint was written by a pipeline with other aggregations, joins or dedupe; "
        "a changed pipeline needs a new checkpoint",
    ),
    (
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        "the columns kept as state have changed; a changed pipeline needs a new checkpoint",
    ),
    (
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        "the columns kept as state have changed; a changed pipeline needs a new checkpoint",
    ),
    (
        "java.lang.OutOfMemoryError",
        "Spark ran out of memory; increase spark.driver.memory or set maxOffsetsPerTrigger",
    ),
    (
        "sources in the checkpoint offsets and now there are",
        (
            "the checkpoint was written by a pipeline with another number of sources; a changed pipeline "
            "needs a new checkpoint"
        ),
    ),
    ("No space left on device", "the disk is full"),
)


def mark_message(message: str) -> str:
    """A message for SQL's raise_error, with marks by which `describe_error` finds it in Spark's
    error.
    """
    return f"[OTTLA]{message}[/OTTLA]"


def describe_error(error: BaseException | str) -> str:
    """One sentence without a stack trace: a marked message, a known meaning, the error of the
    pipeline's Python code, or the innermost cause.
    """
    if isinstance(error, PipelineError):
        return str(error)
    text = str(error)
    if marked := _MARKED_MESSAGE.search(text):
        return marked["message"].strip()
    for pattern, meaning in _MEANINGS:
        if pattern in text:
            return meaning
    if last := _python_error(text):
        return last.removeprefix(_OWN_ERROR) if last.startswith(_OWN_ERROR) else f"Python raised {last}"
    return _first_sentence(_java_error(text)) or type(error).__name__


def find_error_type(error: BaseException) -> str:
    """The class of the innermost cause, without its message, which may have values of records."""
    text = str(error)
    found = None if isinstance(error, PipelineError) else _ERROR_CLASS.match(_python_error(text) or _java_error(text))
    return found["name"] if found else type(error).__name__


def _python_error(text: str) -> str:
    """The error that the pipeline's own code has raised, with its class; empty if none has. Where a
    batch is written, Spark's errors pass through Python, too.
    """
    own = [found["error"] for found in _PYTHON_ERROR.finditer(text)]
    return next((it.strip() for it in reversed(own) if not it.startswith(("pyspark.", "py4j."))), "")


def _java_error(text: str) -> str:
    """The innermost cause of Spark's or Java's error, with its stack trace."""
    raised = list(_PYTHON_ERROR.finditer(text))
    return _innermost(text[raised[-1].start("error") :] if raised else text)


def _innermost(text: str) -> str:
    """The last `Caused by:` of a Java stack trace, or the text itself."""
    return text.rsplit("Caused by: ", 1)[-1]


def _first_sentence(text: str) -> str:
    """The message without class names, SQLSTATE and query plan."""
    lines: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("at ", "==", "JVM stacktrace", "'", "Traceback", "... ")) and lines:
            break
        if stripped:
            lines.append(stripped)
        if stripped.endswith(";"):
            break  # the query plan follows
    sentence = _CALL.sub("", _SQLSTATE.sub("", " ".join(lines)).rstrip("; "))
    while java_class := _CLASS_PREFIX.match(sentence):
        sentence = sentence[java_class.end() :]
    if found := _SPARK_CLASS.match(sentence):
        sentence = sentence[found.end() :]
    return _describe_analysis_error(sentence)[:_MAX_LENGTH].strip()


def _describe_analysis_error(sentence: str) -> str:
    """Unknown columns and tables with their position in the statement and similar names."""
    where = ""
    if found := _WHERE_IN_SQL.search(sentence):
        sentence, where = sentence[: found.start()], f" ({found['at']}, {found['pos']})"
    if column := _NO_COLUMN.match(sentence):
        near = f"; the nearest are {column['near']}" if column["near"] else ""
        return f"there is no column {column['name']}{where}{near}"
    if table := _NO_TABLE.match(sentence):
        return f"there is no source or step {table['name']}{where}"
    return sentence + where
