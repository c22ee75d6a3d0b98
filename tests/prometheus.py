"""A Prometheus server that tests start, from Debian's package `prometheus`."""

import json
import math
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.jars import skip_or_fail_in_ci
from tests.ports import free_port
from tests.waiting import eventually

STARTS_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint that is scraped, and the labels of its samples."""

    port: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prometheus:
    port: int

    def get(self, path: str, **parameters: str) -> Any:
        """`data` of a response of the HTTP API. Raises AssertionError with the server's error."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def values(self, expression: str) -> list[float]:
        """The values of an instant query, without those that are NaN."""
        found = (float(one["value"][1]) for one in self.get("query", query=expression)["result"])
        return [value for value in found if not math.isnan(value)]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


def find_program(name: str) -> str:
    """Path of `prometheus` or `promtool`. Skips the test, or fails in CI, if it is missing."""
    return shutil.which(name) or skip_or_fail_in_ci(f"no {name}: install Debian's package (`make prometheus` as root)")


@contextmanager
def run_prometheus(folder: Path, targets: Sequence[Target], rules: Path) -> Iterator[Prometheus]:
    """Runs a server that scrapes `targets` and evaluates the rules of a file every second."""
    program, port = find_program("prometheus"), free_port()
    static = [{"targets": [f"127.0.0.1:{one.port}"], "labels": dict(one.labels)} for one in targets]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "ottla", "static_configs": static}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/prometheus",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log = folder / "prometheus.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL) as process:
        server = Prometheus(port)
        try:
            eventually(lambda: _is_ready(port), within_s=STARTS_WITHIN_S, message=log.read_text)
            yield server
        finally:
            process.terminate()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
            return True
    except OSError:
        return False
