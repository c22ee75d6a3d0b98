"""Descriptions of errors of Spark, Java and Python."""

from __future__ import annotations

import pytest

from ottla_operator.resources.common import parse_duration_ms
from ottla_spark.errors import PipelineError, describe_error, find_error_type, mark_message
from ottla_spark.spark_conf import spark_interval


def test_marked_message_is_found_in_sparks_error() -> None:
    wrapped = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: "
        "Task 0 in stage 3.0 failed\n"
        "Lost task 0.0 (TID 9): org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] "
        f"{mark_message('a row of x breaks y: z > 0')} SQLSTATE: P0001\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2700)"
    )
    assert describe_error(RuntimeError(wrapped)) == "a row of x breaks y: z > 0"


def test_pipeline_error_describes_itself() -> None:
    assert describe_error(PipelineError("the disk is full")) == "the disk is full"


@pytest.mark.parametrize(
    ("error_text", "description"),
    [
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `flihts` cannot be found. Verify the "
            "spelling. SQLSTATE: 42P01; line 1 pos 14;\n"
            "'Project [*]\n+- 'UnresolvedRelation [flihts], [], false\n",
            "there is no source or step `flihts` (line 1, pos 14)",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name "
            "`f`.`delai` cannot be resolved. "
            "Did you mean one of the following? [`delay`, `carrier`]. SQLSTATE: 42703; line 2 pos 7;\n"
            "'Project [carrier#1, 'delai]\n",
            "there is no column `f`.`delai` (line 2, pos 7); the nearest are `delay`, `carrier`",
        ),
        (
            (
                "[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] A column, variable, or function parameter with "
                "name `a` cannot be resolved.  SQLSTATE: 42703; line 1 pos 7;\n'Project ['a]\n"
            ),
            "there is no column `a` (line 1, pos 7)",
        ),
        (
            (
                '[DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES] Cannot resolve "(a + b)" due to data type '
                "mismatch. SQLSTATE: 42K09; line 1 pos 7;\n'Project\n"
            ),
            'Cannot resolve "(a + b)" due to data type mismatch (line 1, pos 7)',
        ),
        (
            "org.apache.spark.SparkException: Job aborted\n\tat a.b.c(D.scala:1)\n"
            "Caused by: org.apache.kafka.common.errors.TimeoutException: Topic x not present in "
            "metadata after 60000 ms.\n\tat e.f(G.java:2)",
            "Topic x not present in metadata after 60000 ms.",
        ),
        (
            (
                "java.lang.IllegalStateException: Some data may have been lost because they are not "
                "available in Kafka any more"
            ),
            "records were",
        ),
        (
            "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "steps.py", line 3, in score\n    return 1 / 0\nZeroDivisionError: division by '
            "zero\n\n\tat a.b(C.scala:1)",
            "Python raised ZeroDivisionError: division by zero",
        ),
        (
            (
                '[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time `id` has the invalid type "INT".;\n'
                "~EventTimeWatermark x, id#20: int\n+- ~Project\n"
            ),
            'The event time `id` has the invalid type "INT".',
        ),
        (
            "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
            '  File "sink.py", line 101, in write_records\n    records.save()\n'
            "pyspark.errors.exceptions.captured.ArithmeticException: [DIVIDE_BY_ZERO] Division by "
            "zero. SQLSTATE: 22012\n"
            "== SQL (line 1, position 8) ==\nSELECT 1/(id-id) AS s FROM orders\n",
            "Division by zero.",
        ),
        ("java.io.IOException: No space left on device", "the disk is full"),
    ],
)
def test_error_is_described_in_one_line_without_a_stack_trace(error_text: str, description: str) -> None:
    assert describe_error(RuntimeError(error_text)).startswith(description)
    assert "\n" not in describe_error(RuntimeError(error_text))


@pytest.mark.parametrize(
    ("error_text", "expected"),
    [
        (
            "[STREAM_FAILED] Query terminated\n\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted\n"
            "\tat a.b.c(D.scala:1)\nCaused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] x\n\tat e.f",
            "org.apache.spark.SparkArithmeticException",
        ),
        (
            "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "steps.py", line 3, in score\n    raise KeyError(row)\nKeyError: 4711\n\n\tat a.b(C.scala:1)',
            "KeyError",
        ),
        ("Caused by: java.lang.InterruptedException\n\tat a.b(C.java:1)", "java.lang.InterruptedException"),
        ("Smith's card is 4711", "RuntimeError"),
        ("card 4711: NoError", "RuntimeError"),
    ],
)
def test_type_of_an_error_is_the_class_of_its_cause_without_the_message(error_text: str, expected: str) -> None:
    assert find_error_type(RuntimeError(error_text)) == expected


def test_type_of_a_pipelines_own_error_is_pipeline_error() -> None:
    assert find_error_type(PipelineError("ValueError: 4711")) == "PipelineError"


@pytest.mark.parametrize(
    ("text", "length"),
    [("500ms", 500), ("30s", 30_000), ("10 minutes", 600_000), ("2 hours", 7_200_000), ("1d", 86_400_000)],
)
def test_duration_is_converted(text: str, length: int) -> None:
    assert parse_duration_ms(text) == length
    assert spark_interval(text) == f"{length} milliseconds"


@pytest.mark.parametrize("text", ["", "soon", "1", "1w", "-1s", "1.5h", "1h30m"])
def test_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)
