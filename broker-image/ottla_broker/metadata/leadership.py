"""Taking the lead of the metadata log, and with it the controller's office.

Invariant: an epoch is given to one broker only, and only to a member of the recorded ISR, because every step is one compare-and-swap on
the register that names the value it replaces. Two brokers that both think the lease has run out cannot both succeed.
"""

from ottla_broker.metadata.register import Conflict, Member, Register, RegisterValue
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

LEASE_MS = 3_000


def founded(cluster_id: str, me: Member, now_ms: int) -> RegisterValue:
    """The first value of a new cluster's register."""
    return RegisterValue(
        cluster_id=cluster_id,
        epoch=1,
        leader=me.broker,
        isr=(me,),
        replicas=(me.broker,),
        holder=me.broker,
        renewed_ms=now_ms,
        lease_ms=LEASE_MS,
    )


def taken_over(value: RegisterValue, me: Member, now_ms: int) -> RegisterValue:
    """The value after `me` takes the lead in the next epoch. Raises KafkaError when `me` may not: it is not in the recorded ISR."""
    if me.key not in [member.key for member in value.isr]:
        known = ", ".join(f"broker {m.broker} on log directory {uuid_text(m.directory)}" for m in value.isr)
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"the register of cluster {value.cluster_id} says that its metadata is held by {known}; this is broker {me.broker} "
            f"on log directory {uuid_text(me.directory)}, which may lack committed metadata and will not lead",
        )
    return RegisterValue(
        cluster_id=value.cluster_id,
        epoch=value.epoch + 1,
        leader=me.broker,
        isr=tuple(me if member.key == me.key else member for member in value.isr),
        replicas=value.replicas,
        holder=me.broker,
        renewed_ms=now_ms,
        lease_ms=LEASE_MS,
    )


async def take_lead(register: Register, runtime: Runtime, me: Member, cluster_id: str | None) -> RegisterValue:
    """Reads, decides, swaps; again on conflict. `cluster_id`: what the log directory remembers (None: a new one).

    Raises KafkaError INCONSISTENT_CLUSTER_ID when the directory belongs to another cluster than the register, or when this broker may
    not lead it.
    """
    while True:
        seen = await register.read()
        if seen.value is None:
            wanted = founded(cluster_id or uuid_text(runtime.new_uuid()), me, runtime.now_ms())
        elif cluster_id not in (None, seen.value.cluster_id):
            raise KafkaError(
                ErrorCode.inconsistent_cluster_id,
                f"the log directory belongs to cluster {cluster_id}, but the register is cluster {seen.value.cluster_id}'s",
            )
        else:
            wanted = taken_over(seen.value, me, runtime.now_ms())
        try:
            return (await register.swap(seen, wanted)).value or wanted
        except Conflict:
            continue
