"""The drivers of pipelines, asked how they do."""

import json
import logging
from typing import Final

import aiohttp

from ottla_operator.plan.pipeline.seen import RunnerStatus

WITHIN_S: Final = 2.0
LARGEST: Final = 64 * 1024
log = logging.getLogger("ottla.operator")


async def ask(address: str) -> RunnerStatus | None:
    """`address`: host:port. None when nobody answers there, or somebody else."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=WITHIN_S)) as session,
            session.get(f"http://{address}/status", allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                return None
            return RunnerStatus.parse(json.loads(await answer.content.read(LARGEST)))
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        log.debug("the driver at %s does not say how it does: %s", address, error or type(error).__name__)
        return None
