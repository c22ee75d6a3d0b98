"""Topic: desired state of one topic. The topic itself is stored in the brokers' metadata."""

from typing import Annotated, Literal

from msgspec import Meta

from ottla_operator.resources.common import (
    ConfigValues,
    ObjectRef,
    Resource,
    Status,
    Tenant,
    TopicName,
    format_setting,
    tenant_prefix,
)
from ottla_operator.resources.lake import Lake
from ottla_operator.resources.model import Json, Model, Rule, Transition, doc, immutable, immutable_cluster_ref


def topic_name(resource: str, name: str | None, tenant: str | None) -> str:
    """Name on the brokers. `resource`: name of the Topic. `name`, `tenant`: those of its spec."""
    return f"{tenant_prefix(tenant)}{name or resource}"


def stored_topic_name(resource: Json) -> str:
    """Name on the brokers of a Topic in plain JSON."""
    spec = resource["spec"]
    return topic_name(resource["metadata"]["name"], spec.get("topicName"), spec.get("tenant"))


class TopicSpec(Model, frozen=True):
    """Desired state of the topic. The operator does not manage fields that are not set."""

    cluster_ref: Annotated[ObjectRef, doc("Cluster that the topic belongs to. Immutable.")]
    topic_name: Annotated[
        TopicName | None,
        doc(
            "Name of the topic on the brokers, without the tenant: up to 249 letters, digits, '.', '_' and '-'. "
            "Immutable. Defaults to metadata.name."
        ),
    ] = None
    tenant: Annotated[
        Tenant | None,
        doc("Tenant that the topic belongs to. Its name on the brokers begins with it: TENANT.NAME. Immutable."),
    ] = None
    partitions: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        doc(
            "Number of partitions. It can be increased, after which keys may map to other "
            "partitions; it cannot be decreased. Defaults to the brokers' num.partitions at creation."
        ),
    ] = None
    replicas: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None,
        doc(
            "Replication factor: number of brokers that store each partition. "
            "Defaults to the brokers' default.replication.factor at creation."
        ),
    ] = None
    config: Annotated[
        ConfigValues | None,
        doc(
            "Topic configuration by Kafka name, such as retention.ms or cleanup.policy. "
            "A setting that is removed here reverts to the cluster's default."
        ),
    ] = None
    lake: Annotated[
        Lake | None,
        doc(
            "Table that the records are appended to, with the columns record_timestamp, record_partition and "
            "record_offset. The operator creates a Pipeline for it, and deletes that with this resource or field."
        ),
    ] = None
    deletion_policy: Annotated[
        Literal["Retain", "Delete"] | None,
        doc(
            "What happens to the topic when this resource, which has no finalizer, is deleted. Retain: the topic and "
            "its records are kept. Delete: the topic and its records are deleted. Defaults to Retain."
        ),
    ] = None

    rules = (
        Rule(
            "!has(self.topicName) || (self.topicName != '.' && self.topicName != '..')",
            "a topic cannot be named '.' or '..'",
            lambda spec: spec.get("topicName") not in (".", ".."),
            "topicName",
        ),
        Transition(
            "!has(oldSelf.partitions) || (has(self.partitions) && self.partitions >= oldSelf.partitions)",
            (
                "partitions cannot be decreased, because records cannot move between partitions; create a "
                "new topic instead"
            ),
            lambda new, old: "partitions" not in old or new.get("partitions", 0) >= old["partitions"],
            "partitions",
            lambda new, old: f"{new.get('partitions', 'unset')} is less than the current {old['partitions']}",
        ),
        Rule(
            "!has(self.tenant) || !has(self.topicName) || size(self.tenant) + size(self.topicName) <= 248",
            "tenant and topicName together, with the dot between them, are longer than 249 characters",
            lambda spec: (
                "tenant" not in spec or "topicName" not in spec or len(spec["tenant"]) + len(spec["topicName"]) <= 248
            ),
            "topicName",
        ),
        immutable("tenant", "tenant is immutable; create a new Topic instead"),
        immutable("topicName", "topicName is immutable; create a new Topic instead"),
        immutable_cluster_ref("clusterRef is immutable; create a new Topic instead, or a Mirror to copy the records"),
    )


class LakeStatus(Model, frozen=True):
    """Observed state of the Pipeline that fills the lake's table."""

    pipeline: Annotated[str | None, doc("Name of the Pipeline.")] = None
    state: Annotated[str | None, doc("State of the Pipeline.")] = None
    lag_records: Annotated[int | None, doc("Number of records that are not in the table yet.")] = None
    lag_seconds: Annotated[float | None, doc("Age of the oldest record that is not in the table yet.")] = None
    message: Annotated[
        Annotated[str, Meta(max_length=4096)] | None, doc("Why the Pipeline is not ready; see its conditions.")
    ] = None


class TopicStatus(Status, frozen=True):
    """Observed state of the topic."""

    topic_name: Annotated[str | None, doc("Name of the topic on the brokers.")] = None
    topic_id: Annotated[
        str | None,
        doc("Topic id, in Kafka's text form. A topic that is deleted and re-created gets a new id."),
    ] = None
    partitions: Annotated[int | None, doc("Number of partitions.")] = None
    replicas: Annotated[int | None, doc("Replication factor; the smallest where partitions differ.")] = None
    lake: Annotated[LakeStatus | None, doc("State of the lake.")] = None


class Topic(Resource, frozen=True):
    """A topic of a Cluster. Topics created by clients are not changed unless a Topic names them."""

    kind: Literal["Topic"]
    spec: TopicSpec
    status: TopicStatus | None = None

    @property
    def topic_name(self) -> str:
        return topic_name(self.metadata.name, self.spec.topic_name, self.spec.tenant)

    @property
    def config(self) -> dict[str, str]:
        """`spec.config` with values as Kafka's protocol carries them."""
        return {name: format_setting(value) for name, value in (self.spec.config or {}).items()}
