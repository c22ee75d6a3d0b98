"""Brokers on three nodes, one of which loses its power under load and comes back."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.kube.cluster import Kube
from tests.kube.installed import Installed
from tests.kube.kept import Kept, ready
from tests.kube.node import Node
from tests.kube.under_load import go_on
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
TOPIC = "power-lost"


@pytest.fixture
def others(kube: Kube, images: dict[str, Path]) -> Iterator[list[Node]]:
    """Two nodes more. They are gone afterwards: other tests know of one alone."""
    added: list[Node] = []
    try:
        for _ in range(2):
            added.append(kube.add_node([images["broker"]]))
        yield added
    finally:
        for node in reversed(added):
            kube.remove(node)


def test_a_node_loses_its_power_and_comes_back(
    installed: Installed, kept: Kept, kube: Kube, images: dict[str, Path], others: list[Node]
) -> None:
    spread = Kept(installed, kept.resources, kept.moments, "spread")
    spread.make()
    where = {it["spec"]["nodeName"]: name for name, it in spread.pods().items()}
    assert len(where) == 3, f"one broker on each node: {where}"
    lost = others[-1]
    with spread.under_load(TOPIC) as load:
        kube.power_off(lost)
        name = where[lost.name]
        eventually(lambda: others_lead(spread, int(name.rpartition("-")[2])), within_s=60, what=spread.said)
        go_on(load)
        eventually(lambda: not ready(spread.pods()[name]), within_s=60, what="Kubernetes knows that it is away")
        spread.wait("InProgress")
        kube.power_on(lost, [images["broker"]])
        spread.wait()
    kept.resources.delete("Cluster", "spread")
    eventually(lambda: not spread.pods(), within_s=90, what=spread.said)
    assert kept.moments.troubles() == []


def others_lead(spread: Kept, broker: int) -> bool:
    try:
        return broker not in spread.leading(TOPIC)
    except ck.KafkaException:  # Services hand on to the one that is away until Kubernetes has noticed
        return False
