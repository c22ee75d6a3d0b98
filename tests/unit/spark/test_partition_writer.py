"""What a Python process imports before it writes its first row."""

from __future__ import annotations

import os
import subprocess
import sys


def test_process_of_a_writer_imports_nothing_of_the_driver() -> None:
    program = "import sys, ottla_spark.streaming.partition_writer; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    packages = {module.partition(".")[0] for module in done.stdout.split()}
    assert "confluent_kafka" in packages
    assert not packages & {"pyspark", "ottla_operator", "jsonschema"}
