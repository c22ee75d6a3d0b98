"""What is to be said of a Topic: who owns the name, and whether the topic is as wished."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_operator.formatting import format_count
from ottla_operator.plan.conditions import Readiness, Ready, Reconciling, Stalled
from ottla_operator.plan.topics import ObservedTopic, TopicChange
from ottla_operator.plan.topics import UnsatisfiableSpec as CannotBe
from ottla_operator.resources.model import Json
from ottla_operator.resources.topic import Topic
from ottla_operator.resources.validation import validate_resource


@dataclass(slots=True)
class TopicResource:
    """A Topic resource. `topic`: None when its spec is wrong; `wrong` says why."""

    body: Json
    topic: Topic | None
    invalid_reason: str

    @classmethod
    def of(cls, body: Json) -> "TopicResource":
        plain = {key: body[key] for key in ("apiVersion", "kind", "spec")}
        metadata = {key: body["metadata"][key] for key in ("name", "namespace")}
        if found := validate_resource({**plain, "metadata": {"name": metadata["name"]}}):
            return cls(body, None, "; ".join(map(str, found)))
        return cls(body, Topic.parse({**plain, "metadata": metadata}), "")

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def deletes_topic(self) -> bool:
        """Whether its topic goes with it; a spec that is wrong otherwise says that, too."""
        return (self.body["spec"] or {}).get("deletionPolicy") == "Delete"

    @property
    def rank(self) -> tuple[str, str]:
        """The older resource comes first."""
        return self.body["metadata"].get("creationTimestamp", ""), self.body["metadata"]["name"]


def topic_owners(wishes: Iterable[TopicResource]) -> dict[str, TopicResource]:
    """Topic's name → the resource that it belongs to: of several, the oldest."""
    found: dict[str, TopicResource] = {}
    for it in sorted(wishes, key=lambda it: it.rank):
        if it.topic:
            found.setdefault(it.topic.topic_name, it)
    return found


def evaluate_topic(
    wish: TopicResource, seen: ObservedTopic | None, todo: Sequence[TopicChange], good: Mapping[str, TopicResource]
) -> Readiness:
    """`todo`: what is still to be changed. `good`: who owns which name; only those that own none of theirs need it."""
    if wish.topic is None:
        return Stalled("InvalidSpec", wish.invalid_reason)
    name = wish.topic.topic_name
    if (owner := good.get(name)) is not None and owner is not wish:
        return Stalled("NameTaken", f"topic {name} belongs to the older Topic {owner.body['metadata']['name']}")
    if stuck := [it.reason for it in todo if isinstance(it, CannotBe)]:
        return Stalled("CannotBe", "; ".join(stuck))
    if seen is None:
        return Reconciling("Creating", f"topic {name} is being made")
    if todo:
        return Reconciling("Changing", f"topic {name} is being changed")
    if seen.moving:
        return Reconciling("Moving", f"partitions of topic {name} are being moved")
    return Ready(f"topic {name} has {format_count(seen.partitions, 'partition')}.")
