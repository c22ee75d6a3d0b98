"""`ottla up` keeps the settings of groups as the Group resources specify them."""

from typing import Any

from tests.clients.share_member import read_group_configs
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, resource
from tests.waiting import eventually

RESET, LIMIT = "share.auto.offset.reset", "share.delivery.count.limit"


def cluster(up: UpProcess) -> Json:
    return resource("Cluster", "demo", replicas=1, listeners=[{"name": "plain", "port": up.port}])


def group(**config: Any) -> Json:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return resource("Group", "work", clusterRef={"name": "demo"}, config=settings)


def test_settings_of_a_group_follow_the_files(up: UpProcess) -> None:
    up.write_resources(cluster(up), group(share_auto_offset_reset="earliest", share_delivery_count_limit=3))
    up.start()
    up.wait_for_line(f"group work: {RESET}=earliest, {LIMIT}=3")
    bootstrap = f"127.0.0.1:{up.port}"
    assert read_group_configs(bootstrap, "work") == {RESET: "earliest", LIMIT: "3"}
    up.write_resources(cluster(up), group(share_delivery_count_limit=4))
    eventually(lambda: read_group_configs(bootstrap, "work") == {LIMIT: "4"})
    up.write_resources(cluster(up), group(share_delivery_count_limit=1000))
    line = up.wait_for_line(f"{LIMIT} cannot be 1000")
    assert line.startswith("✗ resources/all.yaml:"), line
    up.write_resources(cluster(up))
    up.wait_for_line("group work is no longer described; its settings stay")
    assert read_group_configs(bootstrap, "work") == {LIMIT: "4"}
