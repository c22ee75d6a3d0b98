"""What a node needs of Debian: containerd, runc, network plugins and nft. Unpacked beside the programs of Kubernetes, not installed.

So a person's machine does not suddenly run a containerd of its own, and nothing of it outlives the cache.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.jars import skip_or_fail_in_ci

WANTED = ("containerd", "runc", "containernetworking-plugins", "nftables")
MACHINE = "x86_64-linux-gnu"


def unpacked() -> Path:
    """The folder they lie in, as if it were `/`. Fetched when they are not there yet; `unavailable` when they cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "kube"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"debian-{hashlib.sha256(' '.join(WANTED).encode()).hexdigest()[:12]}"
    with (cache / "debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """With which the programs in there run, and find each other."""
    found = [folder / "usr/bin", folder / "usr/sbin", folder / "sbin"]
    return {
        "PATH": os.pathsep.join([*map(str, found), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(str(folder / place / MACHINE) for place in ("usr/lib", "lib")),
    }


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        skip_or_fail_in_ci(f"no `apt-get`, which fetches {', '.join(WANTED)}")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        archives = Path(scratch) / "archives"
        (archives / "partial").mkdir(parents=True)
        command = ["apt-get", "-qy", "-o", f"Dir::Cache::archives={archives}", "--no-install-recommends"]
        # What the machine has already is not fetched, and is found where it is.
        done = subprocess.run(
            [*command, "--download-only", "install", *WANTED], capture_output=True, text=True, check=False
        )
        if done.returncode:
            skip_or_fail_in_ci(f"{', '.join(WANTED)} cannot be fetched: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        made = Path(scratch) / "unpacked"
        made.mkdir()
        for package in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(made)], check=True)
        made.rename(folder)
