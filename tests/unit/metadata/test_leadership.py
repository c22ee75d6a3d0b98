import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.metadata.leadership import founded, take_lead, taken_over
from ottla_broker.metadata.register import Member
from ottla_broker.metadata.register.file import FileRegister
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError

ME = Member(1, UUID(int=1))


def test_a_wiped_disk_may_not_lead() -> None:
    value = founded("c", ME, 0)
    with pytest.raises(KafkaError, match="may lack committed metadata"):
        taken_over(value, Member(1, UUID(int=2)), 0)


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        register = FileRegister(str(tmp_path / "register.json"), Runtime())
        await take_lead(register, Runtime(), ME, "mine")
        await take_lead(register, Runtime(), ME, "theirs")

    with pytest.raises(KafkaError, match="belongs to cluster theirs, but the register is cluster mine's"):
        asyncio.run(run())
