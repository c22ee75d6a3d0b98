"""A Pipeline on a real kubelet whose tables and checkpoint are on an S3-compatible server outside
Kubernetes, with credentials from Secrets. One table is in a REST catalog, the other in a catalog of
PostgreSQL.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable

from ottla_operator.resources.object_store import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.iceberg_catalog import iceberg_catalog
from tests.kube.cluster import NODE_NETWORK, Kubernetes
from tests.kube.installed_operator import describe_pods
from tests.kube.managed_cluster import CLUSTER_NAME, NAMESPACE, ManagedCluster
from tests.postgresql import PASSWORD, USER, PostgreSQL, postgresql
from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, s3_server
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(1500)  # the images may have to be built
HOST = f"{NODE_NETWORK}.1"
STARTS_WITHIN_S = 300.0
SECRETS = {
    "store": {ACCESS_KEY_ID: ACCESS_KEY, SECRET_ACCESS_KEY: SECRET_KEY},
    "rest": {"credential": "tester:rest-secret"},
    "database": {"user": USER, "password": PASSWORD},
}
SPEC: dict[str, Any] = {
    "clusterRef": {"name": CLUSTER_NAME},
    "launcher": "Driver",
    "sources": {"orders": {"topic": "orders", "format": {"type": "json", "schema": "id INT NOT NULL, city STRING"}}},
    "transforms": [
        {"name": "rows", "sql": "SELECT id, city FROM orders"},
        {"name": "sums", "sql": "SELECT city, count(*) AS n FROM orders GROUP BY city"},
    ],
    "checkpoint": {"s3": {"bucket": BUCKET, "prefix": "checkpoints/orders"}},
    "trigger": {"interval": "1s"},
    "spark": {
        "driver": {"cores": "100m", "memory": "1Gi"},
        "executor": {"instances": 1, "cores": "100m", "memory": "768Mi"},
        "conf": {"spark.sql.shuffle.partitions": "1"},
    },
}


@pytest.fixture
def store(kube: Kubernetes, tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3", HOST) as server:
        yield server


@pytest.fixture
def rest_catalog(store: S3Server, tmp_path: Path) -> Iterator[str]:
    """URL of a server of Iceberg's REST API."""
    with iceberg_catalog(tmp_path, store, HOST) as url:
        yield url


@pytest.fixture
def database(kube: Kubernetes) -> Iterator[PostgreSQL]:
    with postgresql(HOST) as running:
        yield running


def sinks(rest_catalog: str, database: PostgreSQL) -> list[dict[str, Any]]:
    rest = {"type": "rest", "uri": rest_catalog, "secretRef": {"name": "rest"}}
    tables = f"s3a://{BUCKET}/of-database"
    jdbc = {"type": "jdbc", "uri": database.url, "warehouse": tables, "secretRef": {"name": "database"}}
    return [
        {"from": "rows", "iceberg": {"table": "rest.shop.rows", "catalog": rest, "partitionBy": ["city"]}},
        {
            "from": "sums",
            "key": ["city"],
            "outputMode": "update",
            "iceberg": {"table": "jdbc.shop.sums", "catalog": jdbc},
        },
    ]


def test_tables_of_two_catalogs_are_on_s3_with_credentials_of_secrets(
    demo: ManagedCluster,
    spark_image: None,
    store: S3Server,
    rest_catalog: str,
    database: PostgreSQL,
) -> None:
    """The driver is killed in between: the next one continues from the checkpoint on S3."""
    resources, api = demo.resources, demo.resources.api
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    for name, values in SECRETS.items():
        api.request("POST", secrets, {"metadata": {"name": name}, "stringData": values})
    resources.create("Topic", "orders", {"clusterRef": {"name": CLUSTER_NAME}, "partitions": 2})
    resources.wait_for_status("Topic", "orders")
    rows = [(number, ["Prague", "Zürau", "Berlin"][number % 3]) for number in range(60)]
    produce(demo.bootstrap(), rows[:40])
    spec = {**SPEC, "s3": {"endpoint": store.endpoint, "secretRef": {"name": "store"}}}
    resources.create("Pipeline", "orders", {**spec, "sinks": sinks(rest_catalog, database)})

    def status() -> dict[str, Any]:
        return dict(resources.get("Pipeline", "orders").get("status") or {})

    def describe() -> str:
        return f"{status()}\n{describe_pods(demo.operator.kube, NAMESPACE, 'orders')}"

    def wait_for_rows(expected: list[tuple[int, str]], progress: object) -> None:
        """Waits for a batch after that of `progress`, and until both tables have the results of
        exactly these rows.
        """
        eventually(
            lambda: status().get("lastProgress") not in (None, progress) and status().get("lagRecords") == 0,
            within_s=STARTS_WITHIN_S,
            message=describe,
        )
        sums = Counter(city for _, city in expected)
        eventually(lambda: read_rows(rest_catalog, store) == Counter(expected), within_s=60, message=describe)
        eventually(lambda: read_sums(database, store) == Counter(sums.items()), within_s=60, message=describe)

    wait_for_rows(rows[:40], None)
    pods = {name: it for name, it in resources.list_objects("v1", "pods").items() if name.startswith("orders-")}
    assert any("driver" in name for name in pods) and any("exec" in name for name in pods), describe()
    visible = json.dumps([pods, resources.list_objects("v1", "configmaps"), resources.get("Pipeline", "orders")])
    assert not [it for it in (SECRET_KEY, "rest-secret", PASSWORD.strip('"')) if it in visible]

    progress, driver = status()["lastProgress"], next(name for name in pods if "driver" in name)
    api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{driver}?gracePeriodSeconds=0")
    produce(demo.bootstrap(), rows[40:])
    wait_for_rows(rows, progress)
    assert any(it.endswith("/commits/1") for it in store.files("checkpoints/orders")), describe()
    assert any(it.endswith(".parquet") for it in store.files("of-database/shop/sums"))
    resources.delete("Pipeline", "orders")


def produce(bootstrap: str, rows: list[tuple[int, str]]) -> None:
    for partition in range(2):
        values = [json.dumps({"id": number, "city": city}).encode() for number, city in rows if number % 2 == partition]
        rd.produce(bootstrap, "orders", [Message(None, it, START_MS) for it in values], partition=partition)


def read_rows(rest_catalog: str, store: S3Server) -> Counter[tuple[Any, ...]]:
    """The rows of the table in the REST catalog by their number; empty before it exists."""
    credential = SECRETS["rest"]["credential"]
    lake = RestCatalog("rest", uri=rest_catalog, credential=credential, **store.iceberg_properties())
    try:
        table = lake.load_table("shop.rows")
    except NoSuchTableError:
        return Counter()
    return Counter((row["id"], row["city"]) for row in table.scan().to_arrow().to_pylist())


def read_sums(database: PostgreSQL, store: S3Server) -> Counter[tuple[Any, ...]]:
    """The same of the table in the catalog of PostgreSQL, from the file that it names."""
    if database.run("SELECT to_regclass('iceberg_tables') IS NOT NULL") != [("t",)]:
        return Counter()
    found = database.run("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'sums'")
    if not found:
        return Counter()
    table = StaticTable.from_metadata(found[0][0], store.iceberg_properties())
    return Counter((row["city"], row["n"]) for row in table.scan().to_arrow().to_pylist())
