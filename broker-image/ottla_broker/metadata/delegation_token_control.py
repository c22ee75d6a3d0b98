"""Delegation tokens in the metadata log: what the active controller decides about them (KIP-48,
KIP-900).
"""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from ottla_broker.config import (
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
    DELEGATION_TOKEN_SECRET_KEY,
    Config,
)
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.metadata_writer import Decision, MetadataWriter
from ottla_broker.metadata.records import DelegationTokenRecord, MetadataRecord, RemoveDelegationTokenRecord
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.security.delegation_tokens import DelegationToken, TokenSecret
from ottla_broker.security.principal import Principal
from ottla_broker.wire.digests import are_equal
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_TIMESTAMP_MS: Final = 2**63 - 1


class DelegationTokenControl(msgspec.Struct, frozen=True):
    """`create_token`, `renew_token` and `expire_token` raise DELEGATION_TOKEN_AUTH_DISABLED without
    `delegation.token.secret.key`.
    """

    _image: MetadataImage
    _writer: MetadataWriter
    _runtime: Runtime
    _config: Config

    async def create_token(
        self, owner: Principal, requester: Principal, renewers: Iterable[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        """Creates a token of `owner` at the request of `requester`. `max_lifetime_ms`: 0 or less
        for the longest lifetime allowed.
        """
        token_secret(self._config)
        now_ms = self._runtime.now_ms()
        longest_ms = self._config(DELEGATION_TOKEN_MAX_LIFETIME_MS)
        max_ms = _add(now_ms, min(longest_ms, max_lifetime_ms) if max_lifetime_ms > 0 else longest_ms)
        token = DelegationToken(
            uuid_text(self._runtime.new_uuid()),
            str(owner),
            str(requester),
            tuple(map(str, renewers)),
            now_ms,
            min(max_ms, _add(now_ms, self._config(DELEGATION_TOKEN_EXPIRY_TIME_MS))),
            max_ms,
        )
        await self._writer.execute(lambda: ([DelegationTokenRecord(token)], None))
        return token

    async def renew_token(self, token_hmac: bytes, principal: Principal, period_ms: int) -> int:
        """Returns the token's new expiry, in ms since the epoch. `period_ms`: 0 or less for the
        longest period allowed.

        Raises DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED,
        DELEGATION_TOKEN_OWNER_MISMATCH.
        """
        secret, now_ms = token_secret(self._config), self._runtime.now_ms()
        longest_ms = self._config(DELEGATION_TOKEN_EXPIRY_TIME_MS)
        renewed_ms = _add(now_ms, min(longest_ms, period_ms) if period_ms > 0 else longest_ms)

        def plan() -> Decision[int]:
            token = self._find(secret, token_hmac)
            if token.is_expired(now_ms):
                raise KafkaError(ErrorCode.delegation_token_expired)
            check_may_renew(token, principal)
            return _plan_expiry(token, renewed_ms)

        return await self._writer.execute(plan)

    async def expire_token(self, token_hmac: bytes, principal: Principal, period_ms: int) -> int:
        """Returns the token's new expiry, in ms since the epoch. `period_ms`: below 0 to remove the
        token at once.

        Raises what `renew_token` raises.
        """
        secret, now_ms = token_secret(self._config), self._runtime.now_ms()

        def plan() -> Decision[int]:
            token = self._find(secret, token_hmac)
            check_may_renew(token, principal)
            if period_ms < 0:
                return [RemoveDelegationTokenRecord(token.id)], now_ms
            if token.is_expired(now_ms):
                raise KafkaError(ErrorCode.delegation_token_expired)
            return _plan_expiry(token, _add(now_ms, period_ms))

        return await self._writer.execute(plan)

    async def remove_expired_tokens(self) -> None:
        now_ms = self._runtime.now_ms()

        def plan() -> list[MetadataRecord]:
            expired = [token for token in self._image.delegation_tokens.values() if token.is_expired(now_ms)]
            for token in expired:
                logger.info("removing delegation token %s of %s: it has expired", token.id, token.owner)
            return [RemoveDelegationTokenRecord(token.id) for token in expired]

        await self._writer.apply_plan(plan)

    def find_token_id(self, token_hmac: bytes) -> str | None:
        """None for an unknown token, and without `delegation.token.secret.key`."""
        try:
            return self._find(token_secret(self._config), token_hmac).id
        except KafkaError:
            return None

    def _find(self, secret: TokenSecret, token_hmac: bytes) -> DelegationToken:
        for token in self._image.delegation_tokens.values():
            if are_equal(secret.hmac_of(token.id), token_hmac):
                return token
        raise KafkaError(ErrorCode.delegation_token_not_found)


def token_secret(config: Config) -> TokenSecret:
    """Raises DELEGATION_TOKEN_AUTH_DISABLED."""
    if (key := config(DELEGATION_TOKEN_SECRET_KEY)) is None:
        raise KafkaError(ErrorCode.delegation_token_auth_disabled)
    return TokenSecret(key)


def check_may_renew(token: DelegationToken, principal: Principal) -> None:
    """Raises DELEGATION_TOKEN_OWNER_MISMATCH."""
    if not token.is_of(principal):
        raise KafkaError(ErrorCode.delegation_token_owner_mismatch)


def _plan_expiry(token: DelegationToken, wanted_ms: int) -> Decision[int]:
    """Lets the token expire at `wanted_ms`, or at the end of its maximum lifetime if that is
    earlier. Returns the expiry in ms.
    """
    expires_ms = min(token.max_ms, wanted_ms)
    return [DelegationTokenRecord(msgspec.structs.replace(token, expires_ms=expires_ms))], expires_ms


def _add(now_ms: int, duration_ms: int) -> int:
    """The end of the duration, at most MAX_TIMESTAMP_MS."""
    return min(now_ms + duration_ms, MAX_TIMESTAMP_MS)
