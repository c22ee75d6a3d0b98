"""Work that the first batch of a pipeline would wait for, done while its queries are planned.

Planning keeps one processor busy for seconds. Meanwhile tables read their topics, and a Python
process of the executor starts for each sink that writes to a topic in transactions. On a cluster,
whose executors may start much later than the driver, nothing is done in advance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from ottla_operator.resources.sinks import Sink
from ottla_spark.streaming.reference_table import ReferenceTable
from ottla_spark.streaming.transactional_writer import start_worker

_THREADS: Final = 2
_POLL_S: Final = 0.1


def warm_up_tasks(
    spark: SparkSession, sinks: Iterable[Sink], tables: Iterable[ReferenceTable]
) -> Iterator[Callable[[], None]]:
    """The work that can be done in advance; none on a cluster."""
    if not str(spark.sparkContext.master).startswith("local"):
        return
    yield from (partial(start_worker, spark, it.query_name) for it in sinks if it.is_transactional)
    yield from (it.read_ahead for it in tables)


@contextmanager
def run_beside(
    tasks: Iterable[Callable[[], None]], cancel_jobs: Callable[[], None], stop_requested: threading.Event
) -> Iterator[None]:
    """Runs the tasks in other threads while the block runs, and waits for them at its end. Raises
    the first error.

    A table can be large: after an error of the block, or when a stop is requested, jobs in flight
    are cancelled and other tasks do not begin.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        running = [pool.submit(it) for it in tasks]

        def wait_for_tasks(is_aborted: Callable[[], bool]) -> None:
            while wait(running, _POLL_S).not_done:
                if is_aborted():
                    for it in running:
                        it.cancel()
                    cancel_jobs()

        try:
            yield
        except BaseException:
            wait_for_tasks(lambda: True)
            raise
        wait_for_tasks(stop_requested.is_set)
        if not stop_requested.is_set():
            for it in running:
                it.result()
