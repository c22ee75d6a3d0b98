"""Checks that `ottla up` and brokers can run on this machine."""

import asyncio
import ctypes
import errno
import json
import os
import re
import resource
import shutil
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla_operator.doctor.finding import Finding, Severity
from ottla_operator.formatting import format_size
from ottla_operator.local.pipelines import find_java, find_missing_prerequisite
from ottla_operator.local.processes import find_process
from ottla_operator.plan.broker_processes import BrokerProcessPlan

AREA: Final = "machine"
MIN_FILES: Final = 4096
MIN_FREE_BYTES: Final = 1 << 30
MIN_FREE_SHARE: Final = 0.05
MIN_JAVA: Final = 17
MAX_CLOCK_ERROR_S: Final = 1.0
TIME_ERROR: Final = 5  # of timex.h
TIMEX_BYTES: Final = 256  # more than the structure has
JAVA_TIMEOUT_S: Final = 20.0
LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def examine_machine(folder: Path, plans: Iterable[BrokerProcessPlan]) -> list[Finding]:
    """`folder`: the data folder of `ottla up`. `plans`: the brokers whose ports are examined."""
    existing = next(it for it in (folder.absolute(), *folder.absolute().parents) if it.exists())
    usage = shutil.disk_usage(existing)
    return [
        evaluate_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        evaluate_clock(*read_clock()),
        evaluate_disk(existing, usage.free, usage.total, is_writable=os.access(existing, os.W_OK)),
        *(
            evaluate_port(port, is_free=_is_free(port), broker=it.label if port in running else "")
            for it in plans
            for running in [find_running_ports(Path(it.folder))]
            for port in sorted(it.ports.values())
        ),
    ]


def evaluate_open_files(soft: int, hard: int) -> Finding:
    """`soft`, `hard`: limits of the process; −1: none."""
    observed = "no limit" if soft < 0 else f"{soft} may be open at once"
    if soft < 0 or soft >= MIN_FILES:
        return Finding(AREA, "open files", Severity.good, observed)
    limit = MIN_FILES if hard < 0 else min(MIN_FILES, hard)
    next_step = f"ulimit -n {limit}" if soft < limit else "raise the hard limit in /etc/security/limits.conf"
    impact = "a broker keeps half of them for connections and half for the segments that are in use"
    return Finding(AREA, "open files", Severity.warning, observed, impact, next_step)


def read_clock() -> tuple[bool | None, float]:
    """Whether the kernel considers the clock synchronised, None if it is unknown; and a bound
    of the clock's error in seconds (adjtimex(2), Linux).
    """
    timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes 0: nothing is changed
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None, 0.0
    (error_us,) = struct.unpack_from("@l", timex, 3 * struct.calcsize("@l"))
    return (None if state < 0 else state != TIME_ERROR), error_us / 1e6


def evaluate_clock(is_synchronised: bool | None, error_s: float) -> Finding:
    if is_synchronised is None:
        return Finding(AREA, "clock", Severity.skipped, "this system does not say whether it is synchronised")
    if is_synchronised and error_s <= MAX_CLOCK_ERROR_S:
        return Finding(AREA, "clock", Severity.good, f"synchronised, within {error_s * 1e3:.0f} ms")
    observed = f"it may be wrong by {error_s:.0f} s" if is_synchronised else "not synchronised, as far as Linux knows"
    impact = "timestamps of records, retention by time, certificates and tokens depend on it"
    return Finding(AREA, "clock", Severity.warning, observed, impact, "timedatectl set-ntp true; in a VM ask its host")


def evaluate_disk(folder: Path, free: int, total: int, *, is_writable: bool) -> Finding:
    """`free`, `total`: bytes of the file system with the folder."""
    subject, observed = "disk", f"{format_size(free)} of {format_size(total)} are free at {folder}"
    if not is_writable:
        impact = "topics, the metadata log and pipelines' checkpoints are kept there"
        return Finding(AREA, subject, Severity.problem, f"{folder} is not writable", impact, "ottla up --home FOLDER")
    if free < MIN_FREE_BYTES or free < MIN_FREE_SHARE * total:
        impact = "a broker whose disk is full refuses records"
        return Finding(
            AREA, subject, Severity.warning, observed, impact, "delete what is not needed, or ottla up --home FOLDER"
        )
    return Finding(AREA, subject, Severity.good, observed)


def find_running_ports(folder: Path) -> set[int]:
    """Ports of the broker that `ottla up` has started in this folder; none if it does not run."""
    if find_process(folder) is None:
        return set()
    listeners: str = json.loads((folder / "settings.json").read_text())["listeners"]
    return {int(listener.rpartition(":")[2]) for listener in listeners.split(",")}


def evaluate_port(port: int, *, is_free: bool, broker: str = "") -> Finding:
    """`broker`: the one of the examined files that runs and has this port; empty if none does."""
    if is_free or broker:
        return Finding(AREA, f"port {port}", Severity.good, f"in use by {broker}, which runs" if broker else "free")
    impact = "a broker cannot listen on a port that another process has"
    return Finding(
        AREA, f"port {port}", Severity.problem, "in use", impact, f"ss -ltnp 'sport = :{port}' names the process"
    )


def evaluate_java(missing: str | None, path: str, version: str) -> Finding:
    """`missing`: the missing prerequisite of pipelines; None if there is none. `version`: the first
    line of `java -version`.
    """
    subject, impact, install = (
        "pipelines",
        "Spark runs on Java; brokers need none",
        "install a Java runtime of 17 or newer",
    )
    if missing is not None:
        next_step = install if "Java" in missing else missing.partition(": ")[2]
        return Finding(AREA, subject, Severity.warning, missing, impact, next_step)
    major = java_major(version)
    if major is None:
        return Finding(AREA, subject, Severity.warning, f"{path} prints no version: {version!r}", impact, install)
    if major < MIN_JAVA:
        return Finding(AREA, subject, Severity.warning, f"{path} is Java {major}", impact, install)
    return Finding(AREA, subject, Severity.good, f"PySpark, and Java {major} at {path}")


def java_major(version: str) -> int | None:
    """17 for `openjdk version "17.0.9"`, 8 for `java version "1.8.0_292"`; None for text without a
    version.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', version)
    return None if match is None else int(match[1])


async def examine_java() -> Finding:
    """Examines whether Java and PySpark, which pipelines need, are installed."""
    missing, path = find_missing_prerequisite(), find_java()
    if missing is not None or path is None:
        return evaluate_java(missing, "", "")
    process = await asyncio.create_subprocess_exec(
        path, "-version", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(JAVA_TIMEOUT_S):
            _, output = await process.communicate()
    except TimeoutError:
        process.kill()
        output = b""
    return evaluate_java(None, path, next(iter(output.decode(errors="replace").splitlines()), ""))


def _is_free(port: int) -> bool:
    return all(_can_bind(family, host, port) for family, host in LOOPBACK)


def _can_bind(family: socket.AddressFamily, host: str, port: int) -> bool:
    """False only if a process has the port. True also if the machine has no such address, or this
    user may not bind the port.
    """
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as reason:
        return reason.errno != errno.EADDRINUSE
    return True
