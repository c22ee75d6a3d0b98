"""Regular expressions of clients and administrators.

RE2 evaluates them in time linear in the length of a text, so that no expression can stall the
broker. Kafka's group coordinators use RE2, too. The library is imported with the first expression,
because it takes 4 MB of memory.
"""

from functools import lru_cache
from importlib import import_module
from typing import Any, Final

MAX_PROGRAM_BYTES: Final = 1 << 20
"""Bounds the memory of one compiled expression; a larger one is invalid."""


@lru_cache(maxsize=128)
def compile_expression(expression: str) -> Any:
    """RE2's compiled expression, which has the methods of `re.Pattern`. Raises ValueError with
    RE2's message."""
    re2 = import_module("re2")
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options=options)
    except re2.error as reason:
        text = reason.args[0] if reason.args else reason
        raise ValueError(text.decode() if isinstance(text, bytes) else str(text)) from reason
