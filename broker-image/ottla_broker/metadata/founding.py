"""A cluster's beginning, and what a broker checks before it takes a register for its cluster's."""

from ottla_broker.metadata.register import RegisterValue, Voter
from ottla_broker.wire.errors import ErrorCode, KafkaError


def check_may_create_cluster(remembered: RegisterValue | None, me: Voter) -> None:
    """An empty register that was not always empty was lost, and only a broker that kept the metadata alone can begin it anew.
    INCONSISTENT_CLUSTER_ID."""
    if remembered is None:
        return
    others = ", ".join(str(member.broker) for member in remembered.isr if member.key != me.key)
    if others:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"the register is empty, but cluster {remembered.cluster_id} had one, and broker {others} may have metadata that this one has not: "
            "restore the register",
        )


def check_cluster_id(mine: str | None, value: RegisterValue) -> None:
    """INCONSISTENT_CLUSTER_ID when the log directory belongs to another cluster than the register."""
    if mine not in (None, value.cluster_id):
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"the log directory belongs to cluster {mine}, but the register is cluster {value.cluster_id}'s",
        )
