"""Settings of the workers, and the errors that name what keeps them from starting side by side."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.__main__ import CANNOT_START, main
from ottla_broker.config import (
    CLUSTER_FOUND,
    HTTP_LISTENER,
    NODE_ID,
    SCHEMA_REGISTRY_LISTENER,
    Config,
    SettingError,
)
from ottla_broker.workers.worker_plan import WorkerPlan, plan_workers
from ottla_broker.workers.workers import broker_command


def config(**settings: str) -> Config:
    base = {"log.dirs": "/a,/b", "node.id": "4", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    return Config.of(base | {name.replace("_", "."): text for name, text in settings.items()})


def configs(plans: tuple[WorkerPlan, ...]) -> list[Config]:
    """The settings with which each worker's broker starts."""
    return [Config.of(dict(override.split("=", 1) for override in plan.overrides)) for plan in plans]


def problems_of_two_workers(existing: dict[str, list[str]] | None = None, **settings: str) -> str:
    with pytest.raises(SettingError) as raised:
        plan_workers(config(**settings), 2, existing or {})
    return "; ".join(raised.value.problems)


@given(st.integers(1, 40), st.integers(0, 9))
def test_workers_share_no_id_port_or_directory_and_one_founds_the_cluster(workers: int, node_id: int) -> None:
    given_settings = config(node_id=str(node_id), http_listener=":7070", schema_registry_listener=":8081")
    started = configs(plan_workers(given_settings, workers, {}))
    assert [it.node_id for it in started] == list(range(node_id, node_id + workers))
    assert len({directory for it in started for directory in it.log_dirs}) == 2 * workers
    ports = [listener.port for it in started for listener in it.listeners]
    assert ports == list(range(9092, 9092 + workers))
    assert [it(HTTP_LISTENER) for it in started] == [("", 7071 + index) for index in range(workers)]
    assert [it(SCHEMA_REGISTRY_LISTENER) for it in started] == [("", 8081 + index) for index in range(workers)]
    servers = tuple(("127.0.0.1", port) for port in ports)
    assert all(it.quorum_bootstrap_servers == servers for it in started)
    assert [it(CLUSTER_FOUND) for it in started] == [index == 0 for index in range(workers)]


def test_workers_advertise_consecutive_ports() -> None:
    given_settings = config(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://example.org:19092")
    plans = plan_workers(given_settings, 2, {})
    assert [str(*it.advertised_listeners) for it in configs(plans)] == [
        "PLAINTEXT://example.org:19092",
        "PLAINTEXT://example.org:19093",
    ]
    assert [it.address for it in plans] == ["example.org:19092", "example.org:19093"]


def test_workers_that_join_a_named_cluster_do_not_found_one() -> None:
    started = configs(plan_workers(config(controller_quorum_bootstrap_servers="other:9092"), 2, {}))
    assert not any(it(CLUSTER_FOUND) for it in started)
    servers = (("other", 9092), ("127.0.0.1", 9092), ("127.0.0.1", 9093))
    assert all(it.quorum_bootstrap_servers == servers for it in started)


def test_workers_with_data_do_not_found_a_second_cluster() -> None:
    started = configs(plan_workers(config(), 2, {"/a": ["worker.5"], "/b": []}))
    assert not any(it(CLUSTER_FOUND) for it in started)


def test_fewer_workers_than_before_are_refused() -> None:
    assert problems_of_two_workers({"/a": ["worker.4", "worker.5", "worker.6"]}) == (
        "log.dirs=/a: no worker would use /a/worker.6: --workers 2 starts brokers 4 to 5. Start as many as before, or "
        "drain and unregister the broker and remove its directory"
    )
    plan_workers(config(), 3, {"/a": ["worker.4", "worker.5", "worker.6"]})
    plan_workers(config(), 4, {"/a": ["worker.4", "worker.5", "worker.6"]})


def test_workers_of_another_node_id_are_refused() -> None:
    assert "/b/worker.1" in problems_of_two_workers({"/b": ["worker.1"]})


def test_the_directory_of_a_single_broker_is_refused() -> None:
    found = problems_of_two_workers({"/a": ["meta.properties", "orders-0"]})
    assert found.startswith("log.dirs=/a: this directory is a broker's own, started without --workers; ")


def test_tls_of_http_is_refused() -> None:
    assert problems_of_two_workers(http_security_listener="SSL") == (
        "http.security.listener=SSL: --workers serves HTTP without TLS; allowed: not set"
    )


def test_ports_that_collide_are_refused() -> None:
    assert problems_of_two_workers(listeners="A://:9092,B://:9093", listener_security_protocol_map="A:SSL,B:SSL") == (
        "listeners=B://:9093: --workers 2 takes ports 9093 to 9094, of which listeners=A://:9092 takes 9093; "
        "leave room for 2 ports after each address"
    )
    assert "http.listener=:9090: --workers 2 takes ports 9090 to 9092" in problems_of_two_workers(http_listener=":9090")
    assert "allowed: a port from 1 to 65534" in problems_of_two_workers(listeners="PLAINTEXT://:65535")
    assert "allowed: a port from 1 to 65534" in problems_of_two_workers(listeners="PLAINTEXT://:0")


def test_settings_of_the_command_give_way_to_those_of_a_worker() -> None:
    given_settings = config()
    first, second = plan_workers(given_settings, 2, {})
    options = argparse.Namespace(
        config=["a.properties"],
        set=["broker.id=4", "log.dirs=/a,/b", "num.partitions=3"],
        add_scram=["SCRAM-SHA-256=[name=a,password=b]"],
        log_level="info",
        log_format="json",
    )
    command = broker_command(first, options, founds=True)
    assert command[3:7] == ["--log-level", "info", "--log-format", "json"]
    assert command[7:11] == ["--config", "a.properties", "--set", "num.partitions=3"]
    assert command[-2:] == ["--add-scram", *options.add_scram]
    assert f"{NODE_ID.name}=4" in command
    assert not [it for it in command if it.startswith("broker.id")]
    assert "--add-scram" not in broker_command(second, options, founds=False)


@pytest.mark.parametrize("text", ["0", "-1", "two", "257", ""])
def test_an_invalid_number_of_workers_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--workers", text, "--set", "log.dirs=/nowhere"])
    assert raised.value.code == CANNOT_START
    assert f"argument --workers: {text} is not a number of workers; allowed: 1 to 256" in capsys.readouterr().err
