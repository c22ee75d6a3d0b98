"""Prints the flights of one site for `ottla produce --lines -`: those of `examples/flights` that
depart from its airports.

The environment variable FLIGHTS_AT_MOST limits the number of events.
"""

import importlib.util
import os
import sys
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

FLIGHTS = Path(__file__).parents[1] / "flights" / "load.py"


def flights_loader() -> ModuleType:
    """The loader of examples/flights."""
    spec = importlib.util.spec_from_file_location("all_flights", FLIGHTS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes are looked up there
    spec.loader.exec_module(module)
    return module


def events(airports: Collection[str]) -> Iterator[Any]:
    """Events in the order of actual times."""
    loader = flights_loader()
    most = os.environ.get("FLIGHTS_AT_MOST")
    mine = (event for event in loader.flights(loader.data_folder()) if event.origin in airports)
    return islice(mine, int(most)) if most else mine


def main(*airports: str) -> None:
    """Prints the events of the airports."""
    encoder = msgspec.json.Encoder()
    for event in events(airports):
        line = {"topic": "flights", "key": event.flight, "value": event}
        sys.stdout.buffer.write(encoder.encode(line) + b"\n")
