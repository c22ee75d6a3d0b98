"""A Topic with a lake, and a Pipeline, on a real kubelet. Their tables and checkpoints are on an
S3-compatible server outside Kubernetes, with credentials from Secrets. The Topic's table is in a
REST catalog, that of the Pipeline in a catalog of PostgreSQL.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable

from ottla_operator.resources.object_store import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.iceberg_catalog import run_iceberg_catalog
from tests.kube.cluster import NODE_NETWORK, Kubernetes
from tests.kube.installed_operator import describe_pods
from tests.kube.managed_cluster import CLUSTER_NAME, NAMESPACE, ManagedCluster
from tests.postgresql import PASSWORD, USER, PostgreSQL, run_postgresql
from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, run_s3_server
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(1500)  # the images may have to be built
HOST = f"{NODE_NETWORK}.1"
STARTS_WITHIN_S = 300.0
SECRETS = {
    "store": {ACCESS_KEY_ID: ACCESS_KEY, SECRET_ACCESS_KEY: SECRET_KEY},
    "rest": {"credential": "tester:rest-secret"},
    "database": {"user": USER, "password": PASSWORD},
}
FORMAT = {"type": "json", "schema": "id INT NOT NULL, city STRING"}
SPARK = {
    "driver": {"cores": "100m", "memory": "1Gi"},
    "executor": {"instances": 1, "cores": "100m", "memory": "768Mi"},
    "conf": {"spark.sql.shuffle.partitions": "1"},
}
PIPELINES = ("lake-visits", "sums")


@pytest.fixture
def store(kube: Kubernetes, tmp_path: Path) -> Iterator[S3Server]:
    with run_s3_server(tmp_path / "s3", HOST) as server:
        yield server


@pytest.fixture
def rest_catalog(store: S3Server, tmp_path: Path) -> Iterator[str]:
    """URL of a server of Iceberg's REST API."""
    with run_iceberg_catalog(tmp_path, store, HOST) as url:
        yield url


@pytest.fixture
def database(kube: Kubernetes) -> Iterator[PostgreSQL]:
    with run_postgresql(HOST) as running:
        yield running


def checkpoint(pipeline: str) -> dict[str, Any]:
    return {"s3": {"bucket": BUCKET, "prefix": f"checkpoints/{pipeline}"}}


def topic_spec(rest_catalog: str, store: dict[str, Any]) -> dict[str, Any]:
    catalog = {"type": "rest", "uri": rest_catalog, "secretRef": {"name": "rest"}}
    lake = {
        "iceberg": {"table": "rest.shop.rows", "catalog": catalog},
        "format": FORMAT,
        "interval": "1s",
        "checkpoint": checkpoint("lake-visits"),
        "s3": store,
        "spark": SPARK,
    }
    return {"clusterRef": {"name": CLUSTER_NAME}, "partitions": 2, "lake": lake}


def pipeline_spec(database: PostgreSQL, store: dict[str, Any]) -> dict[str, Any]:
    catalog = {
        "type": "jdbc",
        "uri": database.url,
        "warehouse": f"s3a://{BUCKET}/of-database",
        "secretRef": {"name": "database"},
    }
    iceberg = {"table": "jdbc.shop.sums", "catalog": catalog}
    return {
        "clusterRef": {"name": CLUSTER_NAME},
        "sources": {"visits": {"topic": "visits", "format": FORMAT}},
        "transforms": [{"name": "sums", "sql": "SELECT city, count(*) AS n FROM visits GROUP BY city"}],
        "sinks": [{"from": "sums", "key": ["city"], "outputMode": "update", "iceberg": iceberg}],
        "trigger": {"interval": "1s"},
        "checkpoint": checkpoint("sums"),
        "s3": store,
        "spark": SPARK,
    }


def test_tables_of_two_catalogs_are_on_s3_with_credentials_of_secrets(
    demo: ManagedCluster,
    spark_image: None,
    store: S3Server,
    rest_catalog: str,
    database: PostgreSQL,
) -> None:
    """The drivers are killed in between: the next ones continue from the checkpoints on S3."""
    resources, api = demo.resources, demo.resources.api
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    for name, values in SECRETS.items():
        api.request("POST", secrets, {"metadata": {"name": name}, "stringData": values})
    on_store = {"endpoint": store.endpoint, "secretRef": {"name": "store"}}
    resources.create("Topic", "visits", topic_spec(rest_catalog, on_store))
    resources.wait_for_status("Topic", "visits")
    rows = [(number, ["Prague", "Zürau", "Berlin"][number % 3]) for number in range(60)]
    produce(demo.bootstrap(), rows[:40])
    resources.create("Pipeline", "sums", pipeline_spec(database, on_store))

    def status(name: str) -> dict[str, Any]:
        return dict(resources.get("Pipeline", name).get("status") or {})

    def describe() -> str:
        found = [f"{status(it)}\n{describe_pods(demo.operator.kube, NAMESPACE, it)}" for it in PIPELINES]
        return "\n".join([*found, str(resources.get("Topic", "visits").get("status"))])

    def has_progress(name: str, before: object) -> bool:
        found = status(name)
        return found.get("lastProgress") not in (None, before) and found.get("lagRecords") == 0

    def wait_for_rows(expected: list[tuple[int, str]], progress: dict[str, object]) -> None:
        """Waits for a batch of each pipeline after those of `progress`, and until both tables have
        the results of exactly these rows.
        """
        for name in PIPELINES:
            has_new_batch = partial(has_progress, name, progress.get(name))
            eventually(has_new_batch, within_s=STARTS_WITHIN_S, message=describe)
        sums = Counter(city for _, city in expected)
        eventually(lambda: read_rows(rest_catalog, store) == Counter(expected), within_s=60, message=describe)
        eventually(lambda: read_sums(database, store) == Counter(sums.items()), within_s=60, message=describe)
        lake = resources.get("Topic", "visits")["status"]["lake"]
        assert lake["pipeline"] == "lake-visits"
        eventually(
            lambda: resources.get("Topic", "visits")["status"]["lake"].get("lagRecords") == 0,
            within_s=60,
            message=describe,
        )

    def drivers() -> list[str]:
        return [name for name in resources.list_objects("v1", "pods") if "driver" in name]

    wait_for_rows(rows[:40], {})
    pods = {name: it for name, it in resources.list_objects("v1", "pods").items() if name.startswith(PIPELINES)}
    assert len(drivers()) == 2 and any("exec" in name for name in pods), describe()
    visible = json.dumps(
        [pods, resources.list_objects("v1", "configmaps"), *(resources.get("Pipeline", it) for it in PIPELINES)]
    )
    assert not [it for it in (SECRET_KEY, "rest-secret", PASSWORD.strip('"')) if it in visible]

    progress = {name: status(name)["lastProgress"] for name in PIPELINES}
    for driver in drivers():
        api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{driver}?gracePeriodSeconds=0")
    produce(demo.bootstrap(), rows[40:])
    wait_for_rows(rows, progress)
    for name in PIPELINES:
        assert any(it.endswith("/commits/1") for it in store.files(f"checkpoints/{name}")), describe()
    assert any(it.endswith(".parquet") for it in store.files("of-database/shop/sums"))
    resources.delete("Pipeline", "sums")
    resources.delete("Topic", "visits")
    eventually(lambda: "lake-visits" not in resources.list_objects("ottla.dev/v1alpha1", "pipelines"), within_s=120)


def produce(bootstrap: str, rows: list[tuple[int, str]]) -> None:
    for partition in range(2):
        values = [json.dumps({"id": number, "city": city}).encode() for number, city in rows if number % 2 == partition]
        rd.produce(bootstrap, "visits", [Message(None, it, START_MS) for it in values], partition=partition)


def read_rows(rest_catalog: str, store: S3Server) -> Counter[tuple[Any, ...]]:
    """The rows in the REST catalog's table, and how often each occurs; empty before it exists."""
    credential = SECRETS["rest"]["credential"]
    lake = RestCatalog("rest", uri=rest_catalog, credential=credential, **store.iceberg_properties())
    try:
        table = lake.load_table("shop.rows")
    except NoSuchTableError:
        return Counter()
    return Counter((row["id"], row["city"]) for row in table.scan().to_arrow().to_pylist())


def read_sums(database: PostgreSQL, store: S3Server) -> Counter[tuple[Any, ...]]:
    """The rows in the table of PostgreSQL's catalog, and how often each occurs; empty before it
    exists. The catalog names the table's metadata file.
    """
    if database.run("SELECT to_regclass('iceberg_tables') IS NOT NULL") != [("t",)]:
        return Counter()
    found = database.run("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'sums'")
    if not found:
        return Counter()
    table = StaticTable.from_metadata(found[0][0], store.iceberg_properties())
    return Counter((row["city"], row["n"]) for row in table.scan().to_arrow().to_pylist())
