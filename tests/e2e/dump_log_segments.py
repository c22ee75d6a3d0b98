"""Apache Kafka's DumpLogSegments: runs it on files of a partition and finds the faults that it
prints.
"""

import re
import subprocess
from pathlib import Path

from tests.jars import kafka_classpath
from tests.tools_jvm import run_tool

FAULTS = re.compile(
    r"Mismatches|Non-secutive|Non-consecutive|Found timestamp mismatch|Found out of order|not found in|failed|invalid"
    r"|isvalid: false|bytes of (garbage|trailing)|corrupt|No time index found|index .* is empty",
    re.IGNORECASE,
)


def run_dump_log_segments(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the tool. Raises AssertionError if it fails or prints an exception. It does not fail
    because of faults.
    """
    result = run_tool(kafka_classpath(), "kafka.tools.DumpLogSegments", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Exception" not in result.stderr, result.stderr
    return result


def dump_log_segments(*arguments: str) -> str:
    """Output of the tool, with standard error, to which it writes some of the faults."""
    result = run_dump_log_segments(*arguments)
    return result.stdout + result.stderr


def assert_no_faults(output: str) -> None:
    faults = [line for line in output.splitlines() if FAULTS.search(line)]
    assert not faults, "\n".join(faults[:20])


def join_files(folder: Path, suffix: str) -> str:
    """Paths of all files of a folder with this suffix, as the tool's `--files` takes them."""
    paths = sorted(map(str, folder.glob("*" + suffix)))
    assert paths, f"no {suffix} in {sorted(folder.iterdir())}"
    return ",".join(paths)
