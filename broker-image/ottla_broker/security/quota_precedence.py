"""The quota that applies to a client, and the clients that share it: Kafka's order of precedence
(KIP-55).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla_broker.security.client_quotas import CLIENT_ID, IP, USER, QuotaEntity


class ApplicableQuota(NamedTuple):
    """All clients with the same `user` and `client_id` share the limit. Empty: of any user, or with
    any client id.
    """

    user: str
    client_id: str
    limit: float


def find_client_quota(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str, user: str, client_id: str
) -> ApplicableQuota | None:
    """The most specific quota for a user with a client id; None without one. Under a default quota
    each user, or each client id, has the limit for itself.
    """
    candidates: tuple[tuple[QuotaEntity, str, str], ...] = (
        (((USER, user), (CLIENT_ID, client_id)), user, client_id),
        (((USER, user), (CLIENT_ID, None)), user, client_id),
        (((USER, user),), user, ""),
        (((USER, None), (CLIENT_ID, client_id)), user, client_id),
        (((USER, None), (CLIENT_ID, None)), user, client_id),
        (((USER, None),), user, ""),
        (((CLIENT_ID, client_id),), "", client_id),
        (((CLIENT_ID, None),), "", client_id),
    )
    for entity, shared_user, shared_client_id in candidates:
        if (limit := quotas.get(entity, {}).get(key)) is not None:
            return ApplicableQuota(shared_user, shared_client_id, limit)
    return None


def find_ip_quota(quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str, address: str) -> float | None:
    """The quota of an address, or else the default of all addresses; None without one."""
    for name in (address, None):
        if (limit := quotas.get(((IP, name),), {}).get(key)) is not None:
            return limit
    return None
