"""Brokers of clusters as processes on one machine."""

from pathlib import PurePath

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.brokers import plan, unserved
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator import samples

HOME = PurePath("/home/.ottla")


def cluster(name: str = "demo", **spec: object) -> Cluster:
    return Cluster.model_validate(samples.cluster(name, **spec))


def test_one_broker() -> None:
    (broker,) = plan([cluster(config={"num.partitions": 3, "auto.create.topics.enable": False})], HOME)
    assert broker.address == "127.0.0.1:9092"
    assert broker.settings["node.id"] == "1"
    assert broker.settings["listeners"] == "PLAIN://127.0.0.1:9092"
    assert broker.settings["log.dirs"] == "/home/.ottla/demo/1/data"
    assert broker.settings["register"] == "file:/home/.ottla/demo/register.json"
    assert (broker.settings["num.partitions"], broker.settings["auto.create.topics.enable"]) == ("3", "false")
    assert broker.settings["offsets.topic.replication.factor"] == "1"


def test_what_is_set_wins_over_what_suits_a_small_cluster() -> None:
    (broker,) = plan([cluster(config={"offsets.topic.replication.factor": 2})], HOME)
    assert broker.settings["offsets.topic.replication.factor"] == "2"


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(9090, 9096), min_size=1, max_size=3, unique=True)), max_size=3
    )
)
def test_no_two_have_a_port_a_folder_or_an_id_in_common(shapes: list[tuple[int, list[int]]]) -> None:
    clusters = [
        cluster(
            f"c{index}",
            replicas=replicas,
            listeners=[{"name": f"l{at}", "port": port} for at, port in enumerate(ports)],
        )
        for index, (replicas, ports) in enumerate(shapes)
    ]
    brokers = plan(clusters, HOME, most=4)
    ports = [port for broker in brokers for port in broker.ports.values()]
    assert len(ports) == len(set(ports))
    assert len({broker.folder for broker in brokers}) == len(brokers) == sum(it.spec.replicas for it in clusters)
    assert plan(clusters, HOME, most=4) == brokers
    if clusters:
        assert list(brokers[0].ports.values()) == shapes[0][1]


def test_a_changed_setting_changes_the_hash_and_nothing_else_does() -> None:
    (one,), (same,), (other,) = (plan([cluster(config={"num.partitions": it})], HOME) for it in (1, 1, 2))
    assert one.hash == same.hash != other.hash


def test_listeners_that_cannot_be_served_are_told_and_left_out() -> None:
    wanted = cluster(
        listeners=[{"name": "plain", "port": 9092}, {"name": "safe", "port": 9093, "tls": True}],
        tls={"secretRef": {"name": "x"}},
    )
    (broker,) = plan([wanted], HOME)
    assert dict(broker.ports) == {"plain": 9092}
    assert [it.field for it in unserved(wanted)] == [("spec", "listeners", 1)]
