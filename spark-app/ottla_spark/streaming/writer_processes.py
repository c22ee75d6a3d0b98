"""Python processes of executors that run the tasks of one sink and no others.

Of the Python processes that wait for a task, Spark takes the one that has waited longest. So if
there are two, a sink with one task for each batch would change from one to the other and back, and
would open a producer for each batch. Spark keeps processes apart that differ in their environment
variables.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar, cast

from pyspark import RDD

_VARIABLE: Final = "OTTLA_SINK"
_T = TypeVar("_T")
_lock: Final = threading.Lock()


def collect_in_own_processes(rows: RDD[_T], name: str) -> list[_T]:
    """Computes `rows`, which functions of Python make, in Python processes that run only tasks of
    this name.
    """
    environment = rows.context.environment
    with _lock:
        environment[_VARIABLE] = name
        try:
            cast(Any, rows)._jrdd  # noqa: B018  here the functions get the variables
        finally:
            del environment[_VARIABLE]
    return rows.collect()
