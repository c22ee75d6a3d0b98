"""`ottla diff` lists what `ottla up` would change, and finds no difference after the change."""

import json
from pathlib import Path

import yaml

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, login_options, resource
from tests.waiting import eventually


def resources(
    up: UpProcess, *, partitions: int, retention_ms: int, default_partitions: int = 1, rate: int = 1000
) -> list[Json]:
    listeners = [{"name": "clients", "port": up.port, "authentication": "SCRAM"}]
    reference = {"name": "demo"}
    return [
        resource(
            "Cluster",
            "demo",
            replicas=1,
            listeners=listeners,
            authorization={"type": "ACL"},
            config={"num.partitions": default_partitions},
        ),
        resource("Topic", "orders", clusterRef=reference, partitions=partitions, config={"retention.ms": retention_ms}),
        resource(
            "User",
            "billing",
            clusterRef=reference,
            authentication={"type": "SCRAM-SHA-512"},
            acls=[{"allow": ["Read"], "topic": "orders"}],
            quotas={"producerByteRate": rate},
        ),
    ]


def diff(up: UpProcess, files: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    done = up.run_ottla("diff", str(files), *login_options(up), *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_diff_lists_what_up_then_changes(up: UpProcess) -> None:
    up.write_resources(*resources(up, partitions=2, retention_ms=1000, default_partitions=1, rate=1000))
    files = up.folder / "resources"
    up.start()
    up.wait_for_line("clients connect with")
    up.wait_for_line("topic orders created")
    eventually(lambda: diff(up, files) == (0, "no differences: 3 resources\n"), within_s=30)

    wanted = up.folder / "wanted.yaml"
    changed = resources(up, partitions=5, retention_ms=2000, default_partitions=2, rate=2000)
    changed.append(resource("Topic", "new", clusterRef={"name": "demo"}, partitions=3))
    wanted.write_text(yaml.safe_dump_all(changed))
    code, text = diff(up, wanted, "-o", "json")
    assert code == 1, text
    found = {(it["name"], it["field"]): (it["current"], it["desired"]) for it in json.loads(text)}
    assert found == {
        ("demo", "config.num.partitions"): ("1", "2"),
        ("orders", "partitions"): ("2", "5"),
        ("orders", "config.retention.ms"): ("1000", "2000"),
        ("new", "topic"): ("", "created: 3 partitions, the brokers' default"),
        ("billing", "user"): ("", "producer_byte_rate=2000"),
    }
    code, text = diff(up, wanted)
    assert code == 1 and "num.partitions" in text

    up.write_resources(*changed)
    up.wait_for_line("topic new created")
    eventually(lambda: diff(up, wanted) == (0, "no differences: 4 resources\n"), within_s=60)


def test_impossible_changes_are_reported(up: UpProcess) -> None:
    up.write_resources(*resources(up, partitions=2, retention_ms=1000, default_partitions=1, rate=1000))
    up.start()
    up.wait_for_line("topic orders created")
    wanted = up.folder / "wanted.yaml"
    wanted.write_text(yaml.safe_dump(resource("Topic", "orders", clusterRef={"name": "demo"}, partitions=1)))
    code, text = diff(up, wanted)
    assert code == 1 and "impossible: the topic has 2 partitions and cannot shrink to 1" in text
    code, text = diff(up, wanted, "--cluster", "other")
    assert code == 2 and "no resource is of Cluster 'other'; in the files: demo" in text
    mirror = resource(
        "Mirror",
        "west",
        target={"clusterRef": {"name": "demo"}},
        source={"bootstrap": "localhost:1"},
        topics=["orders"],
    )
    wanted.write_text(yaml.safe_dump_all([resources(up, partitions=2, retention_ms=1000)[1], mirror]))
    assert diff(up, wanted) == (0, "no differences: 1 resource\nnot compared: Mirror west\n")
    code, text = diff(up, up.folder / "missing.yaml")
    assert code == 2 and "no such file or folder" in text
