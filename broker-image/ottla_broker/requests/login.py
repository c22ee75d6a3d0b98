"""One token of a client's login: in a SaslAuthenticate, or bare after a SaslHandshake of version
0.
"""

import asyncio
import logging

from ottla_broker.requests.context import ConnectionState
from ottla_broker.security.sasl_session import SaslSession
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)


async def respond_to_token(connection: ConnectionState, session: SaslSession, token: bytes) -> bytes:
    """The response; with the last one the connection has its principal. Raises the session's
    KafkaError, after `connection.failed.authentication.delay.ms`.
    """
    await session.prepare(token)
    try:
        response = session.respond(token)
    except KafkaError as error:
        logger.info("login from %s failed on listener %s: %s", connection.host, connection.listener, error)
        await asyncio.sleep(session.sasl.failure_delay_s)
        raise
    if session.principal is not None:
        connection.principal = session.principal
    return response
