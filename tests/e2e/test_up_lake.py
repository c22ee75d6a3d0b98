"""A Topic with the field `lake`: its records are in an Iceberg table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import produce_values, resource, topic
from tests.waiting import eventually


def read_table(folder: Path) -> list[tuple[int, int, str]]:
    """Partition, offset and value of each row; empty before the table exists."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake.db", warehouse=str(folder / "lake"))
    try:
        rows = catalog.load_table("air.greetings").scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    assert all(row["record_timestamp"] is not None for row in rows)
    return [(row["record_partition"], row["record_offset"], row["value"].decode()) for row in rows]


@pytest.mark.slow
def test_records_of_a_topic_with_a_lake_are_in_its_table_once(up: UpProcess) -> None:
    catalog = {"type": "jdbc", "uri": "jdbc:sqlite:lake.db", "warehouse": "lake"}
    lake = {"iceberg": {"table": "lake.air.greetings", "catalog": catalog}, "interval": "200ms"}
    cluster = resource("Cluster", "demo", replicas=1, listeners=[{"name": "plain", "port": up.port}])
    up.write_resources(cluster, topic(lake=lake))
    folder = up.folder / "resources"
    up.start()
    up.wait_for_line("topic greetings created")
    produce_values(up, "greetings", "one", "two")
    up.wait_for_line("first pipeline row after", within_s=150)
    eventually(lambda: read_table(folder) == [(0, 0, "one"), (0, 1, "two")], within_s=60)
    assert up.stop() == 0
    up.start()
    produce_values(up, "greetings", "three")
    expected = [(0, 0, "one"), (0, 1, "two"), (0, 2, "three")]
    eventually(lambda: sorted(read_table(folder)) == expected, within_s=150)
    up.write_resources(cluster, topic())
    up.wait_for_line("pipeline lake-greetings is no longer described: stopping it")
    assert up.stop() == 0
