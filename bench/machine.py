"""The machine and the versions that a benchmark's figures belong to."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.programs import compile_program
from ottla_broker.hot_paths import hot_paths_build
from tests.jars import KAFKA, java_program

ROOT = Path(__file__).parents[1]
COMPILED = ROOT / "build" / "compiled"


def use_compiled_broker() -> None:
    """Runs this program again with the compiled broker if it is built and up to date: that is the
    one that `make up` runs. Returns otherwise.
    """
    if hot_paths_build() == "compiled" or not COMPILED.exists():
        return
    question = ["make", "--question", f"VENV={sys.prefix}", f"{COMPILED.relative_to(ROOT)}/.built"]
    if subprocess.run(question, cwd=ROOT, capture_output=True, check=False).returncode == 0:
        path = os.pathsep.join(filter(None, [str(COMPILED), os.environ.get("PYTHONPATH")]))
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONPATH": path})


def describe() -> dict[str, str]:
    """What → fact, as reports print them."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "Ottla": _commit(),
        "Python": f"{platform.python_version()}, uvloop {_version('uvloop')}, kio {_version('kio')}",
        "Apache Kafka": f"{KAFKA}, default settings, KRaft combined mode, heap 1 GiB",
        "Java": _first_line([java_program(), "-version"]),
        "librdkafka": _first_line([compile_program("load"), "version"]),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _commit() -> str:
    described = _first_line(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"])
    return f"{_version('ottla')} ({described}), hot paths {hot_paths_build()}"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return (done.stdout + done.stderr).partition("\n")[0] or "unknown"
