"""What a broker may write over a register's value: pure.

Invariant: an epoch is given to one broker only, and only to a recorded member, because each of these values is written by compare-and-swap over
the one that it was made from. Two brokers that both think the lead is vacant cannot both succeed.
"""

from uuid import UUID

from msgspec.structs import replace

from ottla_broker.metadata.register import RegisterValue, Voter
from ottla_broker.runtime import uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

NO_LEADER = -1


def initial_value(cluster_id: str, me: Voter, now_ms: int, *, lease_ms: int, epoch: int = 1) -> RegisterValue:
    """The first value of a new cluster's register. `epoch`: above all that the metadata log has seen, where a register is lost."""
    return RegisterValue(
        cluster_id=cluster_id,
        epoch=epoch,
        leader=me.broker,
        isr=(me,),
        replicas=(me.broker,),
        holder=me.broker,
        renewed_ms=now_ms,
        lease_ms=lease_ms,
    )


def is_voter(value: RegisterValue, me: Voter) -> bool:
    return any(member.key == me.key for member in value.isr)


def with_new_leader(value: RegisterValue, me: Voter, now_ms: int, *, lease_ms: int) -> RegisterValue:
    """The value after `me` takes the lead in the next epoch, reached where it now is. KafkaError INCONSISTENT_CLUSTER_ID when `me` may not: it
    is not a member."""
    if not is_voter(value, me):
        known = ", ".join(f"broker {m.broker} on log directory {uuid_text(m.directory)}" for m in value.isr)
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"the register of cluster {value.cluster_id} says that its metadata is held by {known}; this is broker {me.broker} "
            f"on log directory {uuid_text(me.directory)}, which may lack committed metadata and will not lead; "
            "bring that directory back, or remove the register to begin anew without what was in it",
        )
    members = tuple(me if member.key == me.key else member for member in value.isr)
    return replace(
        value,
        epoch=value.epoch + 1,
        leader=me.broker,
        isr=members,
        holder=me.broker,
        renewed_ms=now_ms,
        lease_ms=lease_ms,
    )


def with_renewed_lease(value: RegisterValue, now_ms: int) -> RegisterValue:
    return replace(value, holder=value.leader, renewed_ms=now_ms)


def with_vacant_lead(value: RegisterValue, now_ms: int) -> RegisterValue:
    return replace(value, holder=NO_LEADER, renewed_ms=now_ms)


def with_voters(value: RegisterValue, members: tuple[Voter, ...], now_ms: int) -> RegisterValue:
    replicas = tuple(member.broker for member in members)
    return replace(value, isr=members, replicas=replicas, renewed_ms=now_ms)


def with_announced_leader(value: RegisterValue, leader: int, epoch: int, address: str) -> RegisterValue:
    """What a broker that heard of a new leader, and not of the register, makes of the value that it knew."""
    known = [member for member in value.isr if member.broker == leader]
    here = Voter(leader, known[0].directory if known else UUID(int=0), address)
    members = tuple(here if member in known else member for member in value.isr)
    return replace(value, epoch=epoch, leader=leader, holder=leader, isr=members if known else (*members, here))


def address_of(value: RegisterValue, broker: int) -> str:
    """host:port; "" when the register does not say."""
    return next((member.address for member in value.isr if member.broker == broker), "")
