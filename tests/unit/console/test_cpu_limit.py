"""Searches in a container with a limit of processor time."""

from pathlib import Path

import pytest

from ottla_broker.console.cpu_limit import MIN_CPUS, SEARCHES_SHARE, SLICE_S, Pacer, find_cpu_limit
from ottla_broker.console.record_scanner import Scanner
from ottla_broker.console.search_messages import ScanRecords, StartSearch
from ottla_broker.wire.records import Record, encode_batch

V2_IN_A_NAMESPACE, V2_IN_A_SLICE = "0::/", "0::/kubepods/pod7/broker"
V1 = "9:name=systemd:/\n2:cpu,cpuacct:/docker/7\n1:cpuset:/\n0::/"


@pytest.mark.parametrize(
    ("own", "files", "cpus"),
    [
        (V2_IN_A_NAMESPACE, {"cpu.max": "150000 100000\n"}, 1.5),
        (V2_IN_A_NAMESPACE, {"cpu.max": "max 100000\n"}, None),
        (V2_IN_A_SLICE, {"kubepods/pod7/broker/cpu.max": "50000 100000\n"}, 0.5),
        (V2_IN_A_SLICE, {"cpu.max": "50000 100000\n"}, 0.5),  # the container sees its own folder only
        (V1, {"cpu,cpuacct/docker/7/cpu.cfs_quota_us": "-1", "cpu,cpuacct/docker/7/cpu.cfs_period_us": "9"}, None),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 2),
        (V1, {"cpuset/cpu.cfs_quota_us": "1", "cpuset/cpu.cfs_period_us": "1"}, None),
        (V2_IN_A_NAMESPACE, {}, None),
        (V2_IN_A_NAMESPACE, {"cpu.max": "?"}, None),
    ],
)
def test_limit_of_a_container_is_found(tmp_path: Path, own: str, files: dict[str, str], cpus: float | None) -> None:
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    (tmp_path / "own").write_text(own)
    assert find_cpu_limit(tmp_path / "cgroup", tmp_path / "own") == cpus
    assert find_cpu_limit(tmp_path / "cgroup", tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("limit", "searches", "cpus"),
    [(1.0, 1, 0.5), (1.0, 4, 0.125), (0.1, 4, MIN_CPUS), (2.0, 1, None), (4.0, 4, 0.5)],
)
def test_searches_together_use_a_part_of_the_limit(limit: float, searches: int, cpus: float | None) -> None:
    used_s, slept_s = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept_s
        slept_s += seconds

    pacer = Pacer(limit, lambda: used_s, sleep)
    for _ in range(10_000):
        used_s += SLICE_S / 7
        pacer.pause_if_due(searches)
    if cpus is None:
        assert slept_s == 0, "one thread cannot use more than its part"
    else:
        assert used_s / (used_s + slept_s) == pytest.approx(cpus, rel=0.01)
        assert cpus == max(MIN_CPUS, limit * SEARCHES_SHARE / searches)


def test_scanner_pauses_between_records(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    monkeypatch.setattr(Pacer, "pause_if_due", lambda self, searches: pauses.append(searches))
    batch = encode_batch([Record(0, None, b"{}")] * 5, base_offset=0)
    for limit, count in ((None, 0), (1.0, 5)):
        Scanner(StartSearch("true", None, "auto"), limit).scan(ScanRecords(0, batch, 0, -1, 100, searches=3))
        assert pauses == [3] * count
