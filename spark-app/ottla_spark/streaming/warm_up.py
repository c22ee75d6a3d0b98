"""Work that the first batch of a pipeline would wait for, done while its queries are planned.

Planning keeps one processor busy for seconds. Meanwhile tables read their topics, and a Python
process of the executor starts, which writes to topics. On a cluster, whose executors may start much
later than the driver, nothing is done in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from pyspark.sql import SparkSession

from ottla_operator.resources.sinks import Sink
from ottla_spark.streaming.reference_table import ReferenceTable
from ottla_spark.streaming.transactional_writer import start_worker

_THREADS = 2


def warm_up_tasks(
    spark: SparkSession, sinks: Iterable[Sink], tables: Iterable[ReferenceTable]
) -> Iterator[Callable[[], None]]:
    if not spark.sparkContext.master.startswith("local"):
        return
    if any(it.is_transactional for it in sinks):
        yield partial(start_worker, spark)
    yield from (it.read_ahead for it in tables)


@contextmanager
def run_beside(tasks: Iterable[Callable[[], None]]) -> Iterator[None]:
    """Runs the tasks in other threads while the block runs, and waits for them at its end. Raises
    the first error. After an error of the block, tasks that have not begun do not run.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        running = [pool.submit(it) for it in tasks]
        try:
            yield
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        for it in running:
            it.result()
