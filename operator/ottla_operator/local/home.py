"""The folder `.ottla/`: its layout, and the lock that keeps two `ottla up` from using one folder.

.ottla/lock                              held while `ottla up` runs; holds its pid
.ottla/<cluster>/brokers.json            which brokers exist, and the reconciler's state
.ottla/<cluster>/certificates/secret/    of listeners with TLS, from a Secret: keystore.pem, ca.crt
.ottla/<cluster>/certificates/internal/  the same, of the cluster's own authority
.ottla/<cluster>/authority/              that authority: ca-1.crt, ca-1.key
.ottla/<cluster>/console/                client secret and authorities of an OpenID Connect provider
.ottla/<cluster>/inter-broker-login/     passwords of brokers and of `ottla up`, client.properties
.ottla/<cluster>/<id>/data               a broker's log directory
.ottla/<cluster>/<id>/settings.json      settings that its process was started with
.ottla/<cluster>/<id>/process.json       pid and start time of its process
.ottla/<cluster>/<id>/output.log         output of its process
.ottla/<cluster>/<id>/restart-at         the `restartAt` that its process was started after
.ottla/<cluster>/<id>/console            host:port of its console
.ottla/<cluster>/<id>/registry           host:port of its schema registry
.ottla/<cluster>/users.json              users with credentials, rules or quotas of a User
.ottla/<cluster>/users/<secret>/         for a user's clients: password, client.properties, …
.ottla/<cluster>/loaded-<hash>.json      of a load script: what it has loaded; also its `limit-…`
                                         and `partitions-…` (numbers of partitions by topic)
.ottla/<cluster>/pipelines/<name>/       checkpoint, progress.jsonl, process.json, output.log; also
                                         `released` once its topics may be read, and pipeline.json
                                         with the Pipeline of a Topic's lake
.ottla/<cluster>/pipelines/<name>/secrets/  Secrets of its sinks and object stores
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla_operator.plan.broker_processes import CONSOLE_FILES, KEYSTORE
from ottla_operator.plan.listener_certificates import AUTHORITIES, ListenerCertificates
from ottla_operator.reconcile.platform import ReconcileState

PRIVATE: Final = 0o600
"""Mode of files that only their owner can read."""


class HomeLocked(Exception):
    """Another `ottla up` uses the folder."""


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    def cluster(self, name: str) -> Path:
        return self.path / name

    def login(self, cluster: str) -> Path:
        return self.path / cluster / "inter-broker-login"

    def broker(self, cluster: str, id_: int) -> Path:
        return self.path / cluster / str(id_)

    def authority(self, cluster: str) -> Path:
        return self.path / cluster / "authority"

    def internal_certificates(self, cluster: str) -> Path:
        return self.path / cluster / "certificates" / "internal"

    def user(self, cluster: str, secret: str) -> Path:
        return self.path / cluster / "users" / secret

    def pipeline(self, cluster: str, name: str) -> Path:
        return self.path / cluster / "pipelines" / name

    def lake_pipeline(self, cluster: str, name: str) -> Path:
        """File of the Pipeline of a Topic's lake."""
        return self.pipeline(cluster, name) / "pipeline.json"

    def lock(self) -> int:
        """Locks the folder until this process ends. Returns the open lock file. Raises
        HomeLocked.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise HomeLocked(
                f"another `ottla up` (pid {holder}) is running in {self.path}; stop it first, or use another --home"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd


def read_state(folder: Path) -> tuple[int, ReconcileState]:
    """Number of brokers of a cluster and its state, from its brokers.json. If that cannot be read,
    0 and an empty state, in which the cluster is to be founded unless the disk of a broker has a
    cluster id.
    """
    try:
        found: dict[str, Any] = json.loads((folder / "brokers.json").read_text())
        return max(map(int, found["present"]), default=0), ReconcileState(
            frozenset(map(int, found["spread"])),
            {str(key): str(value) for key, value in found["settings"].items()},
            frozenset(map(str, found["throttled"])),
            found.get("founding") is True,
        )
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return 0, ReconcileState(is_founding=not _has_cluster(folder))


def _has_cluster(folder: Path) -> bool:
    """True if a broker's disk in a cluster's folder has a cluster id."""
    return any("cluster.id=" in it.read_text() for it in folder.glob("*/data/meta.properties"))


def write_state(folder: Path, count: int, state: ReconcileState) -> None:
    document = {
        "present": list(range(1, count + 1)),
        "spread": sorted(state.spread_over),
        "settings": dict(state.cluster_settings),
        "throttled": sorted(state.throttled_topics),
        "founding": state.is_founding,
    }
    replace_file(folder / "brokers.json", json.dumps(document, indent=2))


def write_certificates(folder: Path, certificates: ListenerCertificates) -> tuple[Path, bool]:
    """Writes certificates of a Secret as files that only their owner can read. Brokers read them
    again when they change. `folder`: the cluster's. Returns the files' folder, and whether it had
    other certificates before.
    """
    target = folder / "certificates" / "secret"
    keystore = f"{certificates.key.strip()}\n{certificates.chain.strip()}\n"
    contents = {KEYSTORE: keystore, **({AUTHORITIES: certificates.authorities} if certificates.authorities else {})}
    present = {name: (target / name).read_text() for name in contents if (target / name).exists()}
    for name in sorted(contents):  # authorities before certificates that they have signed
        if present.get(name) != contents[name]:
            replace_file(target / name, contents[name], mode=PRIVATE)
    return target, bool(present) and present != contents


def write_console_files(folder: Path, files: Mapping[str, str]) -> None:
    """`folder`: the cluster's. `files`: content by name; only their owner can read them."""
    for name, content in files.items():
        replace_file(folder / CONSOLE_FILES / name, content, mode=PRIVATE)


def read_texts(folder: Path) -> dict[str, str]:
    """Content of the files by name; empty without the folder."""
    return {it.name: it.read_text() for it in folder.iterdir() if it.is_file()} if folder.is_dir() else {}


def write_private_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes the files whose content differs, in the order of the mapping."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    present = read_texts(folder)
    for name, text in files.items():
        if present.get(name) != text:
            replace_file(folder / name, text, mode=PRIVATE)


def replace_file(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Replaces a file atomically: a reader sees the whole old or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    scratch.replace(path)


def default_home() -> Path:
    """$OTTLA_HOME, or .ottla in the current folder."""
    return Path(os.environ.get("OTTLA_HOME") or ".ottla")
