"""Tells whether the hot paths run compiled or as Python source.

`setup.py` compiles the modules that `[tool.ottla] compiled-modules` in pyproject.toml lists. Python
imports a compiled module in preference to the source beside it.
"""

import logging
from importlib.util import find_spec
from typing import Final, Literal

logger = logging.getLogger(__name__)

SAMPLE: Final = "ottla_broker.produce_turn"
"""One of the modules; all of them are in one shared library."""


def hot_paths_build() -> Literal["compiled", "pure"]:
    """Imports none of the modules."""
    spec = find_spec(SAMPLE)
    return "pure" if spec is None or spec.origin is None or spec.origin.endswith(".py") else "compiled"


def log_hot_paths_build() -> None:
    """Writes the first line of a broker's log."""
    logger.info("the broker's hot paths are %s", hot_paths_build())
