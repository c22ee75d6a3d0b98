"""Runs PostgreSQL and a worker of Kafka Connect that writes its changes to the cluster.

    python -m examples.cdc [BOOTSTRAP]

The first run fetches the jars with Maven. Data, jars and logs are in `.ottla/cdc`. Ctrl-C stops
both; the next run continues where they were.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from examples.cdc import connect
from examples.cdc.database import USER, NotInstalled, database

BOOTSTRAP: Final = "127.0.0.1:9092"
FOLDER: Final = Path(".ottla/cdc").absolute()
_STOPS_WITHIN_S: Final = 30


def main(bootstrap: str = BOOTSTRAP) -> None:
    """Runs until Ctrl-C or SIGTERM, or until the worker exits."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    jars = connect.fetch_jars(FOLDER / "jars")
    with database(FOLDER / "postgresql") as server:
        print(f"PostgreSQL: psql -h 127.0.0.1 -p {server.port} -U {USER} postgres")
        worker = connect.start_worker(FOLDER, f"{jars}/*", bootstrap)
        try:
            connect.put_connector(worker, json.loads((connect.DEBEZIUM / "connector.json").read_text()))
            print(f"Kafka Connect: http://127.0.0.1:{connect.PORT}/connectors/{connect.CONNECTOR}/status")
            worker.wait()
            raise RuntimeError(f"Connect has exited; see {FOLDER}/connect.log")
        finally:
            worker.terminate()
            worker.wait(_STOPS_WITHIN_S)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        try:
            main(*sys.argv[1:])
        except (NotInstalled, RuntimeError) as failure:
            raise SystemExit(str(failure)) from None
