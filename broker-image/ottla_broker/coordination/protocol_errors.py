"""Errors that several types of groups have in common.

`group_type`: one of the names in the module `group_type`.
"""

from collections.abc import Mapping
from typing import TypeVar

from ottla_broker.wire.errors import ErrorCode, KafkaError

G = TypeVar("G")


def require_group(groups: Mapping[str, object], group_id: str, kind: type[G], group_type: str) -> G:
    """The group with the id. Raises GROUP_ID_NOT_FOUND, also for one of another type."""
    if (group := groups.get(group_id)) is None:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    if not isinstance(group, kind):
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a {group_type} group.")
    return group


def group_full_error(group_type: str, max_size: int) -> KafkaError:
    return KafkaError(
        ErrorCode.group_max_size_reached,
        f"The {group_type} group has reached its maximum capacity of {max_size} members.",
    )


def member_fenced_error(group_type: str, epoch: int, known_epoch: int) -> KafkaError:
    """`epoch`: that of the request."""
    kind = "greater" if epoch > known_epoch else "smaller"
    return KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The {group_type} group member has a {kind} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known_epoch}). The member must abandon all its partitions and rejoin.",
    )
