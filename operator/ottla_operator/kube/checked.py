"""Why specs of one kind cannot be fulfilled: looked at once for each change of a spec."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla_operator.kube.known import Key
from ottla_operator.resources.model import Json
from ottla_operator.resources.validation import validate_resource


@dataclass(slots=True)
class Checked:
    """`unfit`: why Kubernetes cannot have a resource that is right by itself, in words; empty when it can."""

    unfit: Callable[[Json], str]
    _found: dict[Key, tuple[tuple[str, int], str]] = field(default_factory=dict)
    """Uid and generation that were looked at, and what was found."""

    def wrong(self, key: Key, body: Json) -> str:
        """In words; empty when it can be fulfilled."""
        now = (body["metadata"]["uid"], body["metadata"]["generation"])
        before = self._found.get(key)
        if before is None or before[0] != now:
            before = self._found[key] = now, self._look(body)
        return before[1]

    def forget(self, key: Key) -> None:
        self._found.pop(key, None)

    def _look(self, body: Json) -> str:
        found = validate_resource(
            {**{it: body[it] for it in ("apiVersion", "kind", "spec")}, "metadata": {"name": body["metadata"]["name"]}}
        )
        return "; ".join(map(str, found)) or self.unfit(body)
