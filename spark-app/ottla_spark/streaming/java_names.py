"""Names of Java packages and classes, each of which is looked up once.

PySpark reaches a class by its name, `jvm.java.util.ArrayList`, and Py4J asks the JVM at every use
whether `java`, `java.util` and so on are classes. The JVM searches all jars of its class path each
time, a dozen times for the first part of a name: a millisecond of processor time or more.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaPackage


class JavaNames:
    """Names of a view of the JVM, or of a package. What a name means does not change: the class
    path of a JVM is fixed when its first pipeline starts.
    """

    def __init__(self, names: Any) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        """Called for names that are not attributes of this object yet."""
        found = getattr(self._names, name)
        if isinstance(found, JavaPackage):
            found = JavaNames(found)
        setattr(self, name, found)
        return found


def remember_names(context: Any) -> None:
    """Has PySpark look up each name once. `context`: the class SparkContext, connected to its
    JVM.
    """
    if not isinstance(context._jvm, JavaNames):
        context._jvm = context._gateway.jvm = JavaNames(context._jvm)
