"""The two-sites example without its pipeline: the region has the records of both sites once, and
the standby has the same log.
"""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.e2e.mirroring import read_log_bytes, read_records, read_watermarks
from tests.e2e.up_process import UpProcess
from tests.ports import first_of_free_ports
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
CLUSTERS = ("region", "newark", "newyork", "standby")
EVENTS = 400  # of each site
PARTITIONS = 3


def copy_example(up: UpProcess) -> dict[str, str]:
    """Copies the example's files without its pipeline, and sets free ports. Returns the address of
    each cluster.
    """
    folder = up.folder / "resources"
    shutil.copytree(EXAMPLES / "two-sites", folder, ignore=shutil.ignore_patterns("pipeline*", "__pycache__"))
    (up.folder / "flights").symlink_to(EXAMPLES / "flights")
    up.port = first_of_free_ports(len(CLUSTERS))
    clusters: list[Any] = list(yaml.safe_load_all((folder / "clusters.yaml").read_text()))
    assert tuple(it["metadata"]["name"] for it in clusters) == CLUSTERS
    for number, cluster in enumerate(clusters):
        cluster["spec"]["listeners"][0]["port"] = up.port + number
    (folder / "clusters.yaml").write_text(yaml.safe_dump_all(clusters))
    return {name: f"127.0.0.1:{up.port + number}" for number, name in enumerate(CLUSTERS)}


def read_flights(bootstrap: str) -> list[bytes]:
    return [
        record.value or b""
        for partition in range(PARTITIONS)
        for record in read_records(bootstrap, "flights", partition)
    ]


def sum_of_high_watermarks(bootstrap: str) -> int:
    """Sum over all partitions; −1 while no broker responds."""
    try:
        return sum(read_watermarks(bootstrap, "flights", partition)[1] for partition in range(PARTITIONS))
    except OSError:
        return -1


@pytest.mark.slow
def test_two_sites_are_appended_and_mirrored_to_the_standby(up: UpProcess) -> None:
    addresses = copy_example(up)
    up.start(FLIGHTS_AT_MOST=str(EVENTS))
    for name in ("region", "standby"):
        eventually(
            lambda name=name: sum_of_high_watermarks(addresses[name]) == 2 * EVENTS,  # type: ignore[misc]
            within_s=120,
            message=lambda: "\n".join(up.lines),
        )
    written = {name: read_flights(addresses[name]) for name in ("newark", "newyork")}
    assert {msgspec.json.decode(value)["origin"] for value in written["newark"]} == {"EWR"}
    assert {msgspec.json.decode(value)["origin"] for value in written["newyork"]} == {"JFK", "LGA"}
    assert sorted(read_flights(addresses["region"])) == sorted(written["newark"] + written["newyork"])
    data = up.folder / ".ottla"
    for partition in range(PARTITIONS):
        assert read_records(addresses["standby"], "flights", partition) == read_records(
            addresses["region"], "flights", partition
        )
        region, standby = (
            read_log_bytes(log_folder(data, name), "flights", partition) for name in ("region", "standby")
        )
        assert region == standby
    up.wait_for_line("mirror newark: Replicating")
    up.wait_for_line("mirror region: Replicating")
    assert up.stop() == 0
    assert not any("Traceback" in line for line in up.lines)


def log_folder(data: Path, cluster: str) -> Path:
    """Log folder of the cluster's only broker."""
    (folder,) = (path.parent for path in (data / cluster).rglob("flights-0") if path.is_dir())
    return folder
