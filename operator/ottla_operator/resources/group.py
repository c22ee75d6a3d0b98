"""Group: desired configuration of one group of consumers, whatever its protocol."""

from typing import Annotated, Literal

from msgspec import Meta

from ottla_operator.resources.common import (
    ConfigValues,
    ObjectRef,
    Resource,
    Status,
    Tenant,
    format_setting,
    tenant_prefix,
)
from ottla_operator.resources.model import Json, Model, doc, immutable, immutable_cluster_ref


def group_name(resource: str, name: str | None, tenant: str | None) -> str:
    """Group id on the brokers. `resource`: name of the Group. `name`, `tenant`: those of its
    spec.
    """
    return f"{tenant_prefix(tenant)}{name or resource}"


def stored_group_name(resource: Json) -> str:
    """Group id on the brokers of a Group in plain JSON."""
    spec = resource["spec"]
    return group_name(resource["metadata"]["name"], spec.get("groupName"), spec.get("tenant"))


class GroupSpec(Model, frozen=True):
    """Desired state of the group."""

    cluster_ref: Annotated[ObjectRef, doc("Cluster that the group belongs to. Immutable.")]
    config: Annotated[
        ConfigValues,
        doc(
            "Group configuration by Kafka name, such as share.auto.offset.reset or consumer.session.timeout.ms. A "
            "setting that is not here, or is removed, has the brokers' default. The settings stay when this resource "
            "is deleted."
        ),
    ]
    group_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        doc("Id of the group, without the tenant: `group.id` of its members. Immutable. Defaults to metadata.name."),
    ] = None
    tenant: Annotated[
        Tenant | None,
        doc("Tenant that the group belongs to. Its id on the brokers begins with it: TENANT.NAME. Immutable."),
    ] = None

    rules = (
        immutable("tenant", "tenant is immutable; create a new Group instead"),
        immutable("groupName", "groupName is immutable; create a new Group instead"),
        immutable_cluster_ref("clusterRef is immutable; create a new Group instead"),
    )


class GroupStatus(Status, frozen=True):
    """Observed state of the group's configuration."""

    group_name: Annotated[str | None, doc("Id of the group on the brokers.")] = None


class Group(Resource, frozen=True):
    """Settings of a consumer, share or streams group. Other groups keep what clients have set."""

    kind: Literal["Group"]
    spec: GroupSpec
    status: GroupStatus | None = None

    @property
    def group_name(self) -> str:
        return group_name(self.metadata.name, self.spec.group_name, self.spec.tenant)

    @property
    def config(self) -> dict[str, str]:
        """`spec.config` with values as Kafka's protocol carries them."""
        return {name: format_setting(value) for name, value in self.spec.config.items()}
