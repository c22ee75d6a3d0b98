"""Rules of access control, each disabled on purpose: the checks must detect it.

`RULES` has the patches by name. They exist only here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from unittest.mock import patch

from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.security.acls import AccessControlEntry, AclFilter
from ottla_broker.wire.errors import KafkaError

COMMIT_DELAY_S = 2.0


@contextmanager
def rules_deleted_before_commit() -> Iterator[None]:
    """The deletion of a rule is acknowledged before it is committed."""
    original = Controller.delete_acls

    async def delete_acls(controller: Controller, filters: Sequence[AclFilter]) -> list[list[AccessControlEntry]]:
        async def delete_later() -> None:
            await asyncio.sleep(COMMIT_DELAY_S)
            with suppress(KafkaError):  # another broker may be the controller by now
                await original(controller, filters)

        image: MetadataImage = controller._image
        selected = [[entry for entry in image.acls.values() if one.selects(entry)] for one in filters]
        tasks.append(asyncio.get_running_loop().create_task(delete_later()))
        return selected

    tasks: list[asyncio.Task[None]] = []
    with patch.object(Controller, "delete_acls", delete_acls):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "rules deleted before commit": rules_deleted_before_commit,
}
