"""Validation of specs beyond the CRDs, and conditions for errors."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.plan.conditions import Readiness, Reconciling, Stalled
from ottla_operator.reconcile.loops import InternalError
from ottla_operator.reconcile.watch_cache import Key
from ottla_operator.resources.model import Json
from ottla_operator.resources.validation import find_spec_problems


@dataclass(slots=True)
class ValidationCache:
    """Validates each change of a spec once. `find_unsupported`: why the platform cannot run a valid
    resource.
    """

    find_unsupported: Callable[[Json], str]
    _found: dict[Key, tuple[tuple[str, int], str]] = field(default_factory=dict)
    """The uid and generation that were validated, and the result."""

    def find_problems(self, key: Key, resource: Json) -> str:
        """Problems of the spec; empty if it can be fulfilled."""
        version = (resource["metadata"]["uid"], resource["metadata"]["generation"])
        found = self._found.get(key)
        if found is None or found[0] != version:
            problems = find_spec_problems(resource) or self.find_unsupported(resource)
            found = self._found[key] = version, problems
        return found[1]

    def forget(self, key: Key) -> None:
        self._found.pop(key, None)


def error_readiness(error: Exception) -> Reconciling:
    """The condition of a resource whose reconciliation has failed and is retried."""
    if isinstance(error, InternalError):
        return Reconciling("ReconcileError", str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return Reconciling("RetryingAfterError", f"{error.filename}: {error.strerror}")
    return Reconciling("RetryingAfterError", str(error))


def rejected_readiness(error: KafkaError, transient: Collection[ErrorCode]) -> Readiness:
    """The condition of a resource whose change the brokers have refused: Reconciling for a
    `transient` error, which is retried; Stalled for one that a person must resolve.
    """
    if error.code in transient:
        return Reconciling("RetryingAfterError", str(error))
    return Stalled("RejectedByBrokers", str(error))
