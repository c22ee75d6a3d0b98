"""The Python process that starts before the first batch, on real Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_next_task_runs_in_the_process_that_was_started(tmp_path: Path) -> None:
    # A process of its own: Spark's JVM keeps the class path of its first session.
    command = [sys.executable, "-m", "tests.spark.warm_worker", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.stdout.split() == ["False", "True", "False", "True"], done.stderr
