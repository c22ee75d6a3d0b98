"""The error of a partition that a fetch waits for.

mypyc cannot compile a subclass of an exception that it does not compile (docs/compiled.md).
"""

from ottla_broker.wire.errors import KafkaError


class NotYet(KafkaError):
    """A partition cannot be read now, but probably soon: the fetch waits before it sends this
    error.
    """
