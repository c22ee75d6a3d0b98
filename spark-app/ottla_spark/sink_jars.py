"""The jars that the sinks of a pipeline need. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_operator.resources.sinks import SINK_TARGETS, Sink


def needed_jars(sinks: Iterable[Sink]) -> set[str]:
    """Keys of `jars.SINKS` for the jars that the sinks need. The result may have other names: of
    sinks that need no jars."""
    sinks = tuple(sinks)
    found = {name for name in SINK_TARGETS for it in sinks if getattr(it, name) is not None}
    catalogs = [it.iceberg.catalog for it in sinks if it.iceberg is not None]
    for uri in (it.uri or "" for it in catalogs if it is not None):
        found |= {name for start, name in _CATALOG_DRIVERS.items() if uri.startswith(start)}
    return found


_CATALOG_DRIVERS = {"jdbc:sqlite:": "sqlite", "jdbc:postgresql:": "jdbc"}
