"""Topic: a wish about one topic of a cluster. The topic itself belongs to the brokers' metadata."""

from typing import ClassVar, Literal

from pydantic import Field

from ottla_operator.resources.common import ObjectRef, Resource, Settings, Status, TopicName, format_setting
from ottla_operator.resources.model import Model, Rule, Transition, immutable


class TopicSpec(Model):
    """What the topic should be. What is left out is left to the brokers' defaults and is not managed."""

    cluster_ref: ObjectRef = Field(description="The Cluster that the topic belongs to. Never changes.")
    topic_name: TopicName | None = Field(
        default=None,
        description="The topic's name on the brokers; without it, the resource's own name. "
        "Kafka allows letters, digits, '.', '_' and '-', at most 249 of them. Never changes.",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="How many partitions it has. It may grow and never shrinks; when it grows, keys may move "
        "to other partitions. "
        "Without it, the brokers' num.partitions when the topic is made.",
    )
    replicas: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="How many brokers keep a copy of each partition. Without it, the brokers' "
        "default.replication.factor when the topic is made.",
    )
    config: Settings | None = Field(
        default=None,
        description="Topic settings under Kafka's names, such as retention.ms or cleanup.policy. "
        "A setting that is taken out of here goes back to the cluster's default.",
    )
    deletion_policy: Literal["Retain", "Delete"] | None = Field(
        default=None,
        description="What becomes of the topic and its records when this resource is deleted. "
        "Retain (when not set): it stays, and nothing holds the resource's deletion up. Delete: it is deleted "
        "with all its records.",
    )

    rules: ClassVar[tuple[Rule | Transition, ...]] = (
        Rule(
            "!has(self.topicName) || (self.topicName != '.' && self.topicName != '..')",
            "a topic cannot be named '.' or '..'",
            lambda spec: spec.get("topicName") not in (".", ".."),
            "topicName",
        ),
        Transition(
            "!has(oldSelf.partitions) || (has(self.partitions) && self.partitions >= oldSelf.partitions)",
            "partitions can grow but never shrink: records cannot be moved between partitions; make a new "
            "topic instead",
            lambda new, old: "partitions" not in old or new.get("partitions", 0) >= old["partitions"],
            "partitions",
            lambda new, old: f"{new.get('partitions', 'nothing')} is less than {old['partitions']}, as it was",
        ),
        immutable(
            "topicName", "topicName cannot be changed: it would be another topic; make a new Topic resource instead"
        ),
        Transition(
            "self.clusterRef.name == oldSelf.clusterRef.name",
            "clusterRef cannot be changed: it would be another topic; make a new Topic resource, or a Mirror "
            "to copy the records",
            lambda new, old: bool(new["clusterRef"]["name"] == old["clusterRef"]["name"]),
            "clusterRef",
        ),
    )


class TopicStatus(Status):
    """What the topic is."""

    topic_name: str | None = Field(default=None, description="The topic's name on the brokers.")
    topic_id: str | None = Field(
        default=None,
        description="The topic's id, in Kafka's text form. A topic that was deleted and made anew has another one.",
    )
    partitions: int | None = Field(default=None, description="Partitions that it has.")
    replicas: int | None = Field(
        default=None, description="Replicas that each partition has, the smallest number among them."
    )


class Topic(Resource):
    """A topic of a cluster. Topics made by clients are left alone unless a Topic names them."""

    kind: Literal["Topic"]
    spec: TopicSpec
    status: TopicStatus | None = None

    @property
    def topic_name(self) -> str:
        return self.spec.topic_name or self.metadata.name

    @property
    def config(self) -> dict[str, str]:
        """The wished settings as Kafka's protocol carries them."""
        return {name: format_setting(value) for name, value in (self.spec.config or {}).items()}
