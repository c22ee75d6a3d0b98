"""One token of a client's login: in a SaslAuthenticate, or bare after a SaslHandshake of version
0.
"""

import asyncio
import logging
from typing import Final

from ottla_broker.requests.context import RequestContext
from ottla_broker.security.audit import AuditedResource
from ottla_broker.security.sasl_session import SaslSession
from ottla_broker.wire.errors import KafkaError

MAX_AUDITED_NAME: Final = 256

logger = logging.getLogger(__name__)


async def respond_to_token(ctx: RequestContext, session: SaslSession, token: bytes) -> bytes:
    """The response; with the last one the connection has its principal. Raises the session's
    KafkaError, after `connection.failed.authentication.delay.ms`.
    """
    connection = ctx.connection
    await session.prepare(token)
    try:
        response = session.respond(token)
    except KafkaError as error:
        logger.info("login from %s failed on listener %s: %s", connection.host, connection.listener, error)
        user = AuditedResource("USER", session.claimed_user[:MAX_AUDITED_NAME])
        ctx.record_audit("LOGIN", user, error.code.name.upper())
        await asyncio.sleep(session.sasl.failure_delay_s)
        raise
    if session.principal is not None:
        connection.principal = session.principal
    return response
