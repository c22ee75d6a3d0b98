"""Mirrors in `ottla up`: one of two clusters mirrors the other, and edits of the files fail it over
and back.
"""

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.mirroring import produce, read_records, read_watermarks
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, resource
from tests.waiting import eventually


def cluster(name: str, port: int) -> Json:
    return resource("Cluster", name, replicas=1, listeners=[{"name": "plain", "port": port}])


def mirror(**spec: Any) -> Json:
    return resource(
        "Mirror", "west", source={"clusterRef": {"name": "origin"}}, target={"clusterRef": {"name": "copy"}}, **spec
    )


def test_mirror_fails_over_by_a_file_edit(up: UpProcess) -> None:
    source, target = f"127.0.0.1:{up.port + 1}", up.bootstrap
    clusters = (cluster("copy", up.port), cluster("origin", up.port + 1))
    up.write_resources(*clusters, mirror(topics=["orders", "!secret*"]))
    up.start()
    up.wait_for_line("mirror west: set bootstrap.servers=")
    admin = AdminClient({"bootstrap.servers": source})  # must outlive its request
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
    produce(source, "orders", [b"copied"] * 100)
    eventually(
        lambda: read_watermarks(target, "orders", 0) == (0, 100), within_s=60, message=lambda: "\n".join(up.lines)
    )
    up.wait_for_line("mirror west: Replicating")

    def mirrored_partitions() -> list[Json]:
        rows: list[Json] = json.loads(up.run_ottla("mirror", "status", "-o", "json").stdout)
        return rows

    first, second = eventually(lambda: [it for it in mirrored_partitions() if it["lag"] == 0], within_s=30)
    assert (first["mirror"], first["topic"], first["state"], first["end"]) == ("west", "orders", "Replicating", 100)
    assert (second["partition"], second["end"]) == (1, 0)
    result = up.run_ottla("mirror", "failover", "west", "--dry-run")
    assert "0 records of the source are not copied" in result.stdout, result
    assert up.run_ottla("mirror", "status", "east").returncode == 3

    up.write_resources(*clusters, mirror(topics=["orders"], role="FailedOver"))
    up.wait_for_line("mirror west: open for writing; the source was 0 records ahead when last reached")
    produce(target, "orders", [b"ours"] * 5)
    assert [record.value for record in read_records(target, "orders", 0)] == [b"copied"] * 100 + [b"ours"] * 5
    assert {it["state"] for it in mirrored_partitions()} == {"FailedOver"}
    assert up.stop() == 0
    assert not any("Traceback" in line for line in up.lines)


@pytest.mark.slow
def test_old_source_fails_back_and_takes_over_again(up: UpProcess) -> None:
    source, target = f"127.0.0.1:{up.port + 1}", up.bootstrap
    clusters = (cluster("copy", up.port), cluster("origin", up.port + 1))

    def failback(**spec: Any) -> Json:
        clusters_of_mirror = {"source": {"clusterRef": {"name": "copy"}}, "target": {"clusterRef": {"name": "origin"}}}
        return resource("Mirror", "back", **clusters_of_mirror, topics=["orders"], throttle="50M", **spec)

    up.write_resources(*clusters, mirror(topics=["orders"]))
    up.start()
    up.wait_for_line("mirror west: set bootstrap.servers=")
    admin = AdminClient({"bootstrap.servers": source})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    produce(source, "orders", [b"copied"] * 100)
    eventually(
        lambda: read_watermarks(target, "orders", 0) == (0, 100), within_s=60, message=lambda: "\n".join(up.lines)
    )
    up.write_resources(*clusters, mirror(topics=["orders"], role="Paused"))
    up.wait_for_line("mirror west: copying is paused")
    produce(source, "orders", [b"never copied"] * 7)
    up.write_resources(*clusters, mirror(topics=["orders"], role="FailedOver"))
    up.wait_for_line("mirror west: open for writing")
    produce(target, "orders", [b"ours"] * 5)

    failed_over = mirror(topics=["orders"], role="FailedOver")
    up.write_resources(*clusters, failed_over, failback())
    up.wait_for_line("mirror back: 7 records are here and not at the source (orders-0: 7)")
    (row,) = json.loads(up.run_ottla("mirror", "status", "back", "-o", "json", "--bootstrap", source).stdout)
    assert (row["state"], row["diverging"], row["end"]) == ("Diverged", 7, 107)
    up.write_resources(*clusters, failed_over, failback(onDivergence="Truncate"))
    eventually(
        lambda: read_watermarks(source, "orders", 0) == (0, 105), within_s=60, message=lambda: "\n".join(up.lines)
    )
    assert read_records(source, "orders", 0) == read_records(target, "orders", 0)
    up.write_resources(*clusters, failed_over, failback(role="FailedOver"))
    up.wait_for_line("mirror back: open for writing")
    produce(source, "orders", [b"after the failback"] * 3)
    up.write_resources(*clusters, mirror(topics=["orders"]), failback(role="FailedOver"))
    eventually(
        lambda: read_watermarks(target, "orders", 0) == (0, 108), within_s=60, message=lambda: "\n".join(up.lines)
    )
    assert read_records(source, "orders", 0) == read_records(target, "orders", 0)
    assert up.stop() == 0
    assert not any("Traceback" in line for line in up.lines)


def test_groups_with_appended_offsets_are_reported(up: UpProcess) -> None:
    up.write_resources(
        cluster("copy", up.port),
        cluster("origin", up.port + 1),
        mirror(topics=["*"], offsets="Appended", groups=["a"]),
    )
    up.start()
    up.wait_for_line("mirror west: spec.groups cannot be copied with offsets: Appended")
    assert up.stop() == 0
