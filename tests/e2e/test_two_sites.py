"""The two-sites example without its pipeline: both sites' records are once in the region, and the
standby has the same log.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.e2e.mirroring import log_bytes, seen, watermarks
from tests.e2e.up_process import UpProcess, up_process
from tests.ports import free_ports
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
CLUSTERS = ("region", "newark", "newyork", "standby")
EVENTS = 400  # of each site
PARTITIONS = 3


@pytest.fixture
def home(tmp_path: Path) -> Iterator[UpProcess]:
    with up_process(tmp_path) as made:
        yield made


def small(home: UpProcess) -> dict[str, str]:
    """Copies the example's files without its pipeline, with free ports; returns the clusters'
    addresses.
    """
    folder = home.folder / "resources"
    shutil.copytree(EXAMPLES / "two-sites", folder, ignore=shutil.ignore_patterns("pipeline*", "__pycache__"))
    (home.folder / "flights").symlink_to(EXAMPLES / "flights")
    home.port = free_ports(len(CLUSTERS))
    clusters: list[Any] = list(yaml.safe_load_all((folder / "clusters.yaml").read_text()))
    assert tuple(it["metadata"]["name"] for it in clusters) == CLUSTERS
    for number, cluster in enumerate(clusters):
        cluster["spec"]["listeners"][0]["port"] = home.port + number
    (folder / "clusters.yaml").write_text(yaml.safe_dump_all(clusters))
    return {name: f"127.0.0.1:{home.port + number}" for number, name in enumerate(CLUSTERS)}


def flights(bootstrap: str) -> list[bytes]:
    return [one.value or b"" for partition in range(PARTITIONS) for one in seen(bootstrap, "flights", partition)]


def ends(bootstrap: str) -> int:
    """Sum of the high watermarks; −1 while no broker responds."""
    try:
        return sum(watermarks(bootstrap, "flights", partition)[1] for partition in range(PARTITIONS))
    except OSError:
        return -1


def test_two_sites_are_appended_and_mirrored_to_the_standby(home: UpProcess) -> None:
    at = small(home)
    home.start(FLIGHTS_AT_MOST=str(EVENTS))
    for name in ("region", "standby"):
        eventually(lambda name=name: ends(at[name]) == 2 * EVENTS, within_s=120, message=lambda: "\n".join(home.lines))  # type: ignore[misc]
    written = {name: flights(at[name]) for name in ("newark", "newyork")}
    assert {msgspec.json.decode(value)["origin"] for value in written["newark"]} == {"EWR"}
    assert {msgspec.json.decode(value)["origin"] for value in written["newyork"]} == {"JFK", "LGA"}
    assert sorted(flights(at["region"])) == sorted(written["newark"] + written["newyork"])
    data = home.folder / ".ottla"
    for partition in range(PARTITIONS):
        assert seen(at["standby"], "flights", partition) == seen(at["region"], "flights", partition)
        there, here = (log_bytes(folder_of(data, name), "flights", partition) for name in ("region", "standby"))
        assert there == here
    home.wait_for_line("mirror newark: Replicating")
    home.wait_for_line("mirror region: Replicating")
    assert home.stop() == 0
    assert not any("Traceback" in line for line in home.lines)


def folder_of(data: Path, cluster: str) -> Path:
    """Log folder of the cluster's only broker."""
    (found,) = (path.parent for path in (data / cluster).rglob("flights-0") if path.is_dir())
    return found
