"""Plans which users lose their credentials, rules and quotas because their resources were deleted.
Pure.

A finalizer would block the deletion of a User, and so of its namespace, while no operator runs.
Instead, the operator stores a record of each user before it creates the user on the brokers. When a
record's resource no longer exists, the user is revoked, even if no operator ran at the deletion.

Invariants: a user is revoked only if its resource certainly does not exist, is being deleted, or
has another user name now. A user name that another resource owns now is not revoked. A resource is
identified by its uid.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla_operator.plan.topic_deletion import DeletionRecord
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
    field_count = len(type_._fields)
    return {uid: type_(*it) for uid, it in stored.items() if isinstance(it, list) and len(it) == field_count}


def record_of(resource: UserResource) -> UserRecord | None:
    """None for an invalid resource, for which no user is created."""
    user = resource.parsed
    return None if user is None else UserRecord(resource.name, resource.user_name, user.secret_name)


def renamed_records(records: Mapping[str, UserRecord], current: Mapping[str, UserRecord]) -> dict[str, UserRecord]:
    """Records of the former names of users, each with a key that is no resource's uid, so that they
    are revoked. The name of a user with TLS changes with its Cluster's mapping of certificate
    subjects, and with the user's authentication type.
    """
    return {
        f"{uid}/{record.user}": record
        for uid, record in records.items()
        if uid in current and record.user != current[uid].user
    }


def resources_to_look_up(
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
    """The records of users whose resources no longer exist or are being deleted. `deleted`: uids of
    those that are being deleted. `uids`: names of `resources_to_look_up` → the uid of the resource
    that has the name; None if there is none.
    """
    known = {it.uid for it in resources}
    deleted_uids = set(deleted)
    return {
        uid: record
        for uid, record in records.items()
        if uid not in known and (uid in deleted_uids or uids.get(record.resource) != uid)
    }
