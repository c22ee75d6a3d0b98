"""What went wrong, in words: the one kind of error that a person sees, and how the errors of others become it."""

from __future__ import annotations

import re
from typing import Final


class Trouble(Exception):
    """Something a person can act on. Its text is a sentence: what is wrong, where, and what would be right."""


class NotInstalled(Trouble):
    """Something that pipelines need is not on this machine; trying again does not help."""


_BROKEN_EXPECTATION: Final = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*\[OTTLA\](?P<sentence>.*?)\[/OTTLA\]", re.DOTALL)
# After the frames of a traceback, which are indented, comes the error.
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(?P<error>\S.*)")
_CLASS_PREFIX: Final = re.compile(r"^(?:[a-zA-Z_$][\w$]*\.)+[A-Z]\w*(?:Exception|Error):\s*")
_CALL: Final = re.compile(r"^An error occurred while calling \S+ : ")
_SPARK_CLASS: Final = re.compile(r"^\[(?P<name>[A-Z_.0-9]+)\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_WHERE_IN_SQL: Final = re.compile(r"[.;\s]*; (?P<at>line \d+),? (?P<pos>pos \d+)$")
_NO_COLUMN: Final = re.compile(
    r"A column, variable, or function parameter with name (?P<name>\S+) cannot be resolved\.?"
    r"(?: Did you mean one of the following\? \[(?P<near>[^\]]*)\])?"
)
_NO_TABLE: Final = re.compile(r"The table or view (?P<name>\S+) cannot be found\.?")
_LONGEST: Final = 1000

# What the Java side says, and what it means to the person who runs a pipeline. The first that is found wins.
_MEANINGS: Final[tuple[tuple[str, str], ...]] = (
    (
        "Some data may have been lost because they are not available",
        "records were deleted from the topic before they were read (retention, or the topic was made anew); "
        "set onDataLoss: continue to go on with what is left, or start with a new checkpoint",
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
        "Spark ran out of memory; give it more (spark.driver.memory) or set maxOffsetsPerTrigger",
    ),
    (
        "sources in the checkpoint offsets and now there are",
        "the checkpoint was written by a pipeline with another number of sources; a changed pipeline needs a new checkpoint",
    ),
    ("No space left on device", "the disk is full"),
)


def marked(sentence: str) -> str:
    """A sentence for SQL's raise_error that survives Spark's wrapping; `in_words` finds it again."""
    return f"[OTTLA]{sentence}[/OTTLA]"


def in_words(error: BaseException | str) -> str:
    """One short sentence for a person: ours where there is one, else the innermost message, without stack traces."""
    if isinstance(error, Trouble):
        return str(error)
    text = str(error)
    if found := _BROKEN_EXPECTATION.search(text):
        return found["sentence"].strip()
    for sign, meaning in _MEANINGS:
        if sign in text:
            return meaning
    # Spark's own errors pass through Python where a batch is written; only the pipeline's code is of interest.
    raised = list(_PYTHON_ERROR.finditer(text))
    if own := [found["error"] for found in raised if not found["error"].startswith(("pyspark.", "py4j."))]:
        return f"Python raised {own[-1].strip()}"
    return _plain(_innermost(text[raised[-1].start("error") :] if raised else text)) or type(error).__name__


def _innermost(text: str) -> str:
    """The last `Caused by:` of a Java stack trace, or the text itself."""
    return text.rsplit("Caused by: ", 1)[-1]


def _plain(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("at ", "==", "JVM stacktrace", "'", "Traceback", "... ")) and lines:
            break
        if stripped:
            lines.append(stripped)
        if stripped.endswith(";"):  # what Spark planned comes next
            break
    sentence = _CALL.sub("", _SQLSTATE.sub("", " ".join(lines)).rstrip("; "))
    while java_class := _CLASS_PREFIX.match(sentence):
        sentence = sentence[java_class.end() :]
    if found := _SPARK_CLASS.match(sentence):
        sentence = sentence[found.end() :]
    return _of_sql(sentence)[:_LONGEST].strip()


def _of_sql(sentence: str) -> str:
    """What the analyzer says of a statement: what it does not know, where that stands, and what there is."""
    where = ""
    if found := _WHERE_IN_SQL.search(sentence):
        sentence, where = sentence[: found.start()], f" ({found['at']}, {found['pos']})"
    if column := _NO_COLUMN.match(sentence):
        near = f"; the nearest are {column['near']}" if column["near"] else ""
        return f"there is no column {column['name']}{where}{near}"
    if table := _NO_TABLE.match(sentence):
        return f"there is no source or step {table['name']}{where}"
    return sentence + where
