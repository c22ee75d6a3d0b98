"""`python -m tests.e2e.register_contender REGISTER WINS`: takes the register's next epoch so many times, against whoever else wants it.

Prints each epoch that it was given, as it is given. A store that is away is waited for; a swap whose answer never came is not counted as given.
"""

import asyncio
import os
import sys
from uuid import UUID

import msgspec

from ottla_broker.metadata.quorum_rules import Voter
from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue
from ottla_broker.metadata.register.stores import open_register
from ottla_broker.runtime import Runtime

RETRY_PAUSE_S = 0.05


async def take_epochs(setting: str, wins: int) -> None:
    register = open_register(setting, Runtime(), os.environ)
    me = os.getpid()
    while wins:
        try:
            seen = await register.read()
            epoch = seen.value.epoch + 1 if seen.value else 1
            member = Voter(me, UUID(int=me), "127.0.0.1:1")
            given = await register.swap(seen, RegisterValue("c", epoch, me, (member,), (me,), me, 0, 1000))
        except Conflict:
            continue
        except RegisterError:
            await asyncio.sleep(RETRY_PAUSE_S)
            continue
        assert given.value is not None
        assert msgspec.structs.astuple(given.value)[1:3] == (epoch, me)
        print(epoch, flush=True)
        wins -= 1
    await register.close()


if __name__ == "__main__":
    asyncio.run(take_epochs(sys.argv[1], int(sys.argv[2])))
