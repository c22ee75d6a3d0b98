"""The schema ids of subjects, for the validation of produced records.

The broker that leads `_schemas` knows every id. Another one may be some milliseconds behind. So an
id that it does not know counts as unknown only after a complete catch-up with the leader that began
when the id was first asked for, or later.
"""

import asyncio
import logging
from typing import Final

from ottla_broker.registry.schemas_topic import SchemasTopic
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

CATCH_UP_TIMEOUT_S: Final = 5.0
MAX_REQUESTED: Final = 10_000
"""Unknown ids that are remembered with the time of their first request. At this number all are
forgotten."""


class KnownSchemaIds:
    """Answers whether a subject has a schema id. Runs on the broker's event loop."""

    def __init__(self, topic: SchemasTopic) -> None:
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._requested_s: dict[tuple[str, int], float] = {}
        self._caught_up_s = float("-inf")  # when the last complete catch-up began
        self._catching_up: asyncio.Task[None] | None = None

    def is_known(self, subject: str, schema_id: int) -> bool | None:
        """True if a version of the subject, soft-deleted or not, has the schema, False if none has.
        None if this broker does not know yet: the caller asks again after a moment, in which the
        broker catches up with the leader.
        """
        versions = self._topic.state.subjects.get(subject, {}).values()
        if any(version.id == schema_id for version in versions):
            return True
        if self._topic.has_every_record():
            return False
        now_s = self._loop.time()
        if len(self._requested_s) >= MAX_REQUESTED:
            self._requested_s.clear()
        requested_s = self._requested_s.setdefault((subject, schema_id), now_s)
        if self._caught_up_s >= requested_s:
            del self._requested_s[subject, schema_id]  # the id may be registered before it is asked for again
            return False
        if self._catching_up is None:
            self._catching_up = self._loop.create_task(self._catch_up(now_s))
        return None

    async def _catch_up(self, began_s: float) -> None:
        try:
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                await self._topic.catch_up()
            self._caught_up_s = began_s
        except (KafkaError, OSError, TimeoutError) as reason:
            logger.debug("cannot read the schema ids of the registry: %s", reason)
        finally:
            self._catching_up = None
