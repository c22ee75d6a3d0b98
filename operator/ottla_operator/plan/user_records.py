"""Which users lose their credentials, because their resources are gone. Pure.

A finalizer would keep a User, and so its namespace, from being deleted while no operator runs.
Instead, the operator records a user before it gives it anything. A record whose resource no longer
exists is revoked, also by an operator that did not run when the resource was deleted.

Invariants: a user is revoked only if its resource surely does not exist, or is being deleted. A
user name that another resource owns now is left to that one. A resource is known by its uid.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla_operator.plan.topic_deletion import MAX_LISTED, DeletionRecord
from ottla_operator.plan.users import UserResource
from ottla_operator.resources.model import Json


class UserRecord(NamedTuple):
    """`resource`: name of the User. `user`: name that clients authenticate with. `secret`: name of
    the client's Secret.
    """

    resource: str
    user: str
    secret: str


R = TypeVar("R", UserRecord, DeletionRecord)


def parse_records(type_: type[R], stored: Json) -> dict[str, R]:
    """Records from their JSON form, by uid. Invalid ones are ignored."""
    if not isinstance(stored, dict):
        return {}
    fields = len(type_._fields)
    return {uid: type_(*it) for uid, it in stored.items() if isinstance(it, list) and len(it) == fields}


def record_of(resource: UserResource) -> UserRecord | None:
    """None for an invalid resource: nothing is done for it."""
    user = resource.user
    return None if user is None else UserRecord(resource.name, resource.user_name, user.secret_name)


def renamed_records(records: Mapping[str, UserRecord], current: Mapping[str, UserRecord]) -> dict[str, UserRecord]:
    """Records of names that users had before, each under a key that is no resource's: so they are
    revoked. A user with TLS has another name when its Cluster maps subjects otherwise, or its type
    was another one.
    """
    return {
        f"{uid}/{record.user}": record
        for uid, record in records.items()
        if uid in current and record.user != current[uid].user
    }


def list_names(users: Iterable[str]) -> str:
    """The names in a message: at most MAX_LISTED of them."""
    found = sorted(users)
    more = len(found) - MAX_LISTED
    return ", ".join(found[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def find_unknown(
    records: Mapping[str, UserRecord], resources: Iterable[UserResource], deleted: Iterable[str]
) -> set[str]:
    """Names of resources whose existence must be looked up, because no watch shows them. `deleted`:
    uids of resources that are being deleted.
    """
    known = {it.uid for it in resources} | set(deleted)
    return {record.resource for uid, record in records.items() if uid not in known}


def plan_revocations(
    records: Mapping[str, UserRecord],
    resources: Iterable[UserResource],
    deleted: Iterable[str],
    uids: Mapping[str, str | None],
) -> dict[str, UserRecord]:
    """The records of users whose resources are gone. `uids`: names of `find_unknown` → the uid of
    the resource that has the name; None if there is none.
    """
    known = {it.uid for it in resources}
    gone = set(deleted)
    return {
        uid: record
        for uid, record in records.items()
        if uid not in known and (uid in gone or uids.get(record.resource) != uid)
    }
