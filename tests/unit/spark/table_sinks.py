"""Sinks, and those that are Iceberg tables with a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla_operator.resources.sinks import Sink

FOLDER = Path("/yaml")


def sink(**target: Any) -> Sink:
    return Sink.parse({"from": "a", **target})


def iceberg(**catalog: Any) -> Sink:
    return sink(iceberg={"table": "lake.db.t", "catalog": catalog})
