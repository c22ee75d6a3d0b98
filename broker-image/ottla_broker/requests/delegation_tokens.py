"""Common parts of the four APIs of delegation tokens."""

from collections.abc import Awaitable, Callable
from typing import Final, cast

from kio.static.primitive import TZAware

from ottla_broker.metadata.delegation_token_control import DelegationTokenControl
from ottla_broker.requests.context import DONE, RequestContext
from ottla_broker.requests.durations import to_timestamp
from ottla_broker.security.audit import AuditedResource
from ottla_broker.security.principal import ANONYMOUS
from ottla_broker.wire.errors import ErrorCode, KafkaError

NEVER: Final = cast(TZAware, None)
"""The times in a response with an error; -1 on the wire."""


def check_may_use_tokens(ctx: RequestContext) -> None:
    """Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED to clients that have not logged in, or have done
    so with a token.
    """
    principal = ctx.connection.principal
    if principal == ANONYMOUS or principal.token_authenticated:
        raise KafkaError(ErrorCode.delegation_token_request_not_allowed)


async def change_expiry(
    ctx: RequestContext, operation: str, token_hmac: bytes, change: Callable[[DelegationTokenControl], Awaitable[int]]
) -> tuple[ErrorCode, TZAware]:
    """Handles RenewDelegationToken and ExpireDelegationToken on the controller, and records them in
    the audit log. `change` changes the token and returns when it expires, in ms.

    Returns the error code and when the token expires. A client that may not use tokens gets an
    error code and NEVER; other errors are raised.
    """
    try:
        check_may_use_tokens(ctx)
    except KafkaError as error:
        return error.code, NEVER
    tokens = ctx.broker.active_controller().delegation_tokens
    token = AuditedResource("DELEGATION_TOKEN", tokens.find_token_id(token_hmac) or "")
    try:
        expires_ms = await change(tokens)
    except KafkaError as error:
        ctx.record_audit(operation, token, error.code.name.upper())
        raise
    ctx.record_audit(operation, token, DONE)
    return ErrorCode.none, to_timestamp(expires_ms)
