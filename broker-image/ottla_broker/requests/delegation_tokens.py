"""What the four APIs of delegation tokens share."""

from typing import Final, cast

from kio.static.primitive import TZAware

from ottla_broker.requests.context import RequestContext
from ottla_broker.security.principal import ANONYMOUS, Principal
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import EPOCH, MILLISECOND

NEVER: Final = cast(TZAware, None)
"""-1 on the wire: of a token that was not created."""
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, which a client's date can hold."""


def check_may_use_tokens(ctx: RequestContext) -> None:
    """Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED to clients that have not logged in, or have done
    so with a token.
    """
    principal = ctx.connection.principal
    if principal == ANONYMOUS or principal.token_authenticated:
        raise KafkaError(ErrorCode.delegation_token_request_not_allowed)


def timestamp(at_ms: int) -> TZAware:
    return cast(TZAware, EPOCH + min(at_ms, LAST_MS) * MILLISECOND)


def parse_principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)
