"""Runs PostgreSQL and a worker of Kafka Connect that writes the database's changes to the cluster.
Adds and changes rows of the table `orders` if it is empty.

`ottla up examples/cdc` runs this program as long as the cluster; `python examples/cdc/load.py` runs
it beside another cluster at OTTLA_BOOTSTRAP. The first run fetches the jars with Maven. Data, jars
and logs are in `.ottla/cdc`. Ctrl-C and SIGTERM stop PostgreSQL and the worker; the next run
continues where they were. The connector writes the records, so this program prints none; its
messages go to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from examples.cdc import connect, orders
from examples.cdc.database import USER, Database, NotInstalled, database

BOOTSTRAP: Final = "127.0.0.1:9092"
FOLDER: Final = Path(".ottla/cdc").absolute()
_STOPS_WITHIN_S: Final = 10  # a worker without brokers does not stop by itself


def main(bootstrap: str) -> None:
    """Runs until it is interrupted, or until the worker exits."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say("starting PostgreSQL and Kafka Connect, whose jars Maven fetches the first time")
    jars = connect.fetch_jars(FOLDER / "jars")
    with database(FOLDER / "postgresql") as server:
        worker = connect.start_worker(FOLDER, f"{jars}/*", bootstrap)
        try:
            connect.put_connector(worker, json.loads((connect.DEBEZIUM / "connector.json").read_text()))
            say(f"connector: http://127.0.0.1:{connect.PORT}/connectors/{connect.CONNECTOR}/status")
            change_new_table(server)
            say(f"psql -h 127.0.0.1 -p {server.port} -U {USER} postgres")
            worker.wait()
            raise RuntimeError(f"Connect has exited; see {FOLDER}/connect.log")
        finally:
            stop(worker)


def stop(worker: subprocess.Popen[bytes]) -> None:
    """Returns when the worker has ended; kills it after `_STOPS_WITHIN_S`."""
    worker.terminate()
    try:
        worker.wait(_STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def change_new_table(server: Database) -> None:
    """Adds and changes rows of the table `orders` if it is empty."""
    if server.run(["SELECT count(*) FROM orders;"]).strip() == "0":
        say(f"changing rows of the table orders in {orders.TRANSACTIONS:,} transactions")
        orders.main(server)


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        try:
            main(os.environ.get("OTTLA_BOOTSTRAP", BOOTSTRAP))
        except (NotInstalled, RuntimeError) as failure:
            raise SystemExit(str(failure)) from None
