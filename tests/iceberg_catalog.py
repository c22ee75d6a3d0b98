"""A server of Iceberg's REST API for tests: the one that Iceberg tests its own clients with, on
SQLite and an S3-compatible store or a folder.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla_spark import jars
from tests.daemons import Daemon
from tests.jars import fetch_classpath, java_command, kafka_classpath
from tests.ports import LOOPBACK, free_port
from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.waiting import eventually

VERSION: Final = "1.11.0"
JETTY: Final = "12.1.5"  # the server needs it, and its jar does not say so
COORDINATES: Final = (
    "org.apache.iceberg:iceberg-open-api:{version}:test-fixtures",
    "org.apache.iceberg:iceberg-core:{version}",
    "org.apache.iceberg:iceberg-core:{version}:tests",
    "org.apache.iceberg:iceberg-aws:{version}",
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-server:{JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-gzip:{JETTY}",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.slf4j:slf4j-simple:2.0.16",
)
MAIN: Final = "org.apache.iceberg.rest.RESTCatalogServer"


@contextmanager
def run_iceberg_catalog(folder: Path, store: S3Server | None = None, host: str = LOOPBACK) -> Iterator[str]:
    """Runs a server at the address `host`, and yields its URL. Its tables are in `BUCKET` or,
    without a store, in the subfolder `rest`; its database is the file `catalog.db`. Skips the test,
    or fails in CI, if its jars cannot be fetched.
    """
    port = free_port()
    properties = {
        "rest.port": str(port),
        # Tests keep others from writing to the database for a while.
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}?busy_timeout=60000",
        **({"warehouse": str(folder / "rest")} if store is None else _on_s3(store)),
    }
    # The server's own convention for names of environment variables.
    environment = {
        f"CATALOG_{key.upper().replace('-', '__').replace('.', '_')}": value for key, value in properties.items()
    }
    server = Daemon(java_command(_classpath(), MAIN), folder / "catalog.log", environment)
    server.start()
    url = f"http://{host}:{port}"
    try:
        eventually(lambda: _answers(url), within_s=60, message=lambda: server.log.read_text()[-2000:])
        yield url
    finally:
        server.stop()


def _on_s3(store: S3Server) -> dict[str, str]:
    return {
        "warehouse": f"s3://{BUCKET}/rest",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
        "s3.endpoint": store.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }


def fetch_catalog_jars() -> None:
    """Fetches the jars for tests that start the server where nothing can be downloaded. Raises
    JarsUnavailable.
    """
    fetch_classpath(VERSION, COORDINATES)
    jars.ensure_jars({"s3"})


def _classpath() -> str:
    aws = next(it for it in jars.ensure_jars({"s3"}) if it.name.startswith("iceberg-aws-bundle"))
    return f"{kafka_classpath(VERSION, COORDINATES)}:{aws}"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
