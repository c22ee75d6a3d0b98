"""A connection of the driver to a database, through the JVM's JDBC driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

DRIVER: Final = "org.postgresql.Driver"


class JdbcConnection:
    """Statements of one connection. Java's errors are Py4JJavaError."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, *parameters: str | int) -> None:
        statement = self._prepared(sql, parameters)
        try:
            statement.execute()
        finally:
            statement.close()

    def first_column(self, sql: str, *parameters: str | int) -> list[Any]:
        """The first column of a query's result."""
        statement = self._prepared(sql, parameters)
        try:
            rows, found = statement.executeQuery(), []
            while rows.next():
                found.append(rows.getObject(1))
            return found
        finally:
            statement.close()

    def commit(self) -> None:
        self._connection.commit()

    def _prepared(self, sql: str, parameters: tuple[str | int, ...]) -> Any:
        statement = self._connection.prepareStatement(sql)
        for index, value in enumerate(parameters, 1):
            if isinstance(value, int):
                statement.setLong(index, value)
            else:
                statement.setString(index, value)
        return statement


@contextmanager
def connect(spark: SparkSession, url: str, properties: Mapping[str, str]) -> Iterator[JdbcConnection]:
    """A connection while the block runs. Statements that are not committed at its end are rolled
    back.
    """
    jvm: Any = spark._jvm
    jvm.java.lang.Class.forName(DRIVER)
    java_properties = jvm.java.util.Properties()
    for name, value in properties.items():
        java_properties.setProperty(name, value)
    connection = jvm.java.sql.DriverManager.getConnection(url, java_properties)
    try:
        connection.setAutoCommit(False)
        yield JdbcConnection(connection)
    finally:
        connection.close()
