"""Settings of a Spark session for one statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def temporary_conf(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings while the block runs. At its end they have the values that
    they had before.
    """
    previous = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, before in previous.items():
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)
