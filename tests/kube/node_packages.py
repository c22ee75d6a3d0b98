"""Debian packages of a node: containerd, runc, network plugins, nft, iptables and ipset. They are
unpacked into the cache, not installed.

An installation would start containerd as a service of the machine, and would outlive the cache.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.jars import skip_or_fail_in_ci
from tests.locks import file_lock

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "nftables", "iptables", "ipset")
ARCHITECTURE = "x86_64-linux-gnu"


def ensure_unpacked() -> Path:
    """The folder with the unpacked packages, laid out like `/`; downloads them on first use.

    Skips the test, or fails it in continuous integration, if they cannot be downloaded.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "kube"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"debian-{hashlib.sha256(' '.join(PACKAGES).encode()).hexdigest()[:12]}"
    with file_lock(cache / "debian.lock"):
        if not folder.exists():
            _download(folder)
    return folder


def program_environment(folder: Path) -> dict[str, str]:
    """Environment variables with which the unpacked programs run and find each other."""
    programs = [folder / "usr/bin", folder / "usr/sbin", folder / "sbin"]
    return {
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(str(folder / it / ARCHITECTURE) for it in ("usr/lib", "lib")),
    }


def _download(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        skip_or_fail_in_ci(f"no `apt-get` to download {', '.join(PACKAGES)} with")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        archives = Path(scratch) / "archives"
        (archives / "partial").mkdir(parents=True)
        command = ["apt-get", "-qy", "-o", f"Dir::Cache::archives={archives}", "--no-install-recommends"]
        # apt-get does not download packages that are installed; their programs are found on PATH.
        done = subprocess.run(
            [*command, "--download-only", "install", *PACKAGES], capture_output=True, text=True, check=False
        )
        if done.returncode:
            skip_or_fail_in_ci(
                f"{', '.join(PACKAGES)} cannot be downloaded: {done.stdout[-1000:]}{done.stderr[-1000:]}"
            )
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        for package in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
        unpacked.rename(folder)
