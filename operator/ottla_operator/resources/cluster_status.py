"""The status of a Cluster."""

from typing import Annotated

from msgspec import field

from ottla_operator.resources.cluster_tls import CertificateStatus
from ottla_operator.resources.common import Status
from ottla_operator.resources.model import Model, doc, listed


class BrokerStatus(Model, frozen=True):
    """Observed state of one broker."""

    id: Annotated[int, doc("Broker id (node.id).")]
    ready: Annotated[bool, doc("Whether the broker is ready, and registered and not fenced.")]
    version: Annotated[
        str | None,
        doc(
            "Tag of the broker's image, which is its Ottla release unless spec.image is set. Digest of an image that "
            "is named without a tag. Empty if the image has neither, and with `ottla up`."
        ),
    ] = None
    config_hash: Annotated[str | None, doc("Hash of the settings that the broker was started with.")] = None


class BlockingPartition(Model, frozen=True):
    """Partition that would become unwritable if the next broker were restarted now."""

    topic: Annotated[str, doc("Name of the topic.")]
    partition: Annotated[int, doc("Partition index.")]
    isr: Annotated[list[int], doc("Broker ids of the in-sync replicas.")]
    min_isr: Annotated[
        int,
        doc(
            "Number of replicas that must be in sync before the restart, including the broker's own: one more than "
            "must stay in sync during it."
        ),
    ]


class RollStatus(Model, frozen=True):
    """Rolling restart in progress."""

    pending: Annotated[list[int] | None, doc("Ids of brokers that have not been restarted yet.")] = None
    current: Annotated[int | None, doc("Id of the broker that is being restarted.")] = None
    blocked_by: Annotated[
        list[BlockingPartition] | None, doc("Partitions that block the next restart, up to 100 of them.")
    ] = None


class ScalingStatus(Model, frozen=True):
    """Change of the number of brokers in progress."""

    from_: Annotated[int, doc("Number of brokers before.")] = field(name="from")
    to: Annotated[int, doc("Number of brokers that spec.replicas asks for.")]


class ReassignmentStatus(Model, frozen=True):
    """Reassignment in progress."""

    moved: Annotated[int, doc("Number of partitions that are in place.")]
    total: Annotated[int, doc("Number of partitions that are reassigned.")]
    bytes: Annotated[int | None, doc("Bytes that are still to be copied. The operator does not report them.")] = None


class ClusterStatus(Status, frozen=True):
    """Observed state of the cluster."""

    replicas: Annotated[int | None, doc("Number of brokers that exist.")] = None
    ready_replicas: Annotated[int | None, doc("Number of brokers that are ready, and registered and not fenced.")] = (
        None
    )
    selector: Annotated[str | None, doc("Label selector of the brokers' pods, for the scale subresource.")] = None
    version: Annotated[
        str | None,
        doc("Version of all brokers, as in status.brokers. Empty while they have several, as in an upgrade."),
    ] = None
    cluster_id: Annotated[str | None, doc("Cluster id that the brokers report to clients.")] = None
    brokers: Annotated[list[BrokerStatus] | None, doc("Observed state of each broker.", listed("map", "id"))] = None
    controller: Annotated[int | None, doc("Id of the broker that is the active controller.")] = None
    bootstrap: Annotated[dict[str, str] | None, doc("Bootstrap addresses by listener name.")] = None
    under_replicated: Annotated[
        int | None, doc("Number of partitions that are under-replicated or have no leader.")
    ] = None
    roll: Annotated[RollStatus | None, doc("Rolling restart in progress.")] = None
    passwords_rotated_at: Annotated[
        str | None, doc("The rotatePasswordsAt for which brokers got their passwords. Absent during a rotation.")
    ] = None
    scaling: Annotated[ScalingStatus | None, doc("Change of the number of brokers in progress.")] = None
    reassignment: Annotated[ReassignmentStatus | None, doc("Reassignment in progress.")] = None
    certificate: Annotated[CertificateStatus | None, doc("Certificate of the listeners with tls: true.")] = None
