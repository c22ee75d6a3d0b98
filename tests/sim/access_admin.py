"""An administrator who creates and deletes access rules, SCRAM credentials and quotas."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.static.primitive import f64, i8, i32

from ottla_broker.security.scram import ScramMechanism
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode
from tests.sim.admin import SimulatedAdmin

TOPIC, LITERAL, ANY, READ, ALLOW = 2, 3, 1, 3, 3
ITERATIONS = 4096
BYTE_RATE = "producer_byte_rate"


class AccessAdmin(SimulatedAdmin):
    """Each rule, credential and quota is created once and deleted at most once. So one that exists
    after its deletion is a violation.
    """

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.02, 0.4))
            number += 1
            kind, create, delete = self.random.choice(
                (
                    ("rule", self._create_rule, self._delete_rule),
                    ("credential", self._create_credential, self._delete_credential),
                    ("quota", self._create_quota, self._delete_quota),
                )
            )
            name = f"{self.name}-{number}"
            # A request that got no response may be executed later, also after the deletion.
            if await self._change(kind, name, create, exists=True) != 1 or not self.random.randrange(3):
                continue
            await asyncio.sleep(self.random.uniform(0.0, 1.0))
            await self._change(kind, name, delete, exists=False)

    async def create_credential(self, name: str) -> None:
        """Retries until the credential exists or the run is over."""
        await self._change("credential", name, self._create_credential, exists=True)

    async def delete_credential(self, name: str) -> None:
        """Deletes the credential after one to four seconds, and retries until it is gone or the run
        is over.
        """
        await asyncio.sleep(self.random.uniform(1.0, 4.0))
        await self._change("credential", name, self._delete_credential, exists=False)

    async def _change(
        self, kind: str, name: str, send: Callable[[Client, str, int], Awaitable[None]], *, exists: bool
    ) -> int:
        """Returns the number of requests until one succeeded; 0 if the run ended before."""
        access, tries = self.workload.history.access, 0
        access[kind, name] = None

        async def attempt(client: Client) -> bool:
            nonlocal tries
            tries += 1
            await send(client, name, tries)
            return True

        what = f"{kind} {'created' if exists else 'deleted'}"
        if not await self.retry_until_done(f"{what}: {name}", attempt):
            return 0
        access[kind, name] = exists
        self.count(what)
        return tries

    async def _create_rule(self, client: Client, name: str, tries: int) -> None:
        creation = AclCreation(
            resource_type=i8(TOPIC),
            resource_name=name,
            resource_pattern_type=i8(LITERAL),
            principal="User:alice",
            host="*",
            operation=i8(READ),
            permission_type=i8(ALLOW),
        )
        answer = await self.send_to_controller(client, CreateAclsRequest(creations=(creation,)))
        raise_for_error(answer.results[0].error_code, f"create a rule for {name}")

    async def _delete_rule(self, client: Client, name: str, tries: int) -> None:
        rules = DeleteAclsFilter(
            resource_type_filter=i8(TOPIC),
            resource_name_filter=name,
            pattern_type_filter=i8(LITERAL),
            principal_filter=None,
            host_filter=None,
            operation=i8(ANY),
            permission_type=i8(ANY),
        )
        answer = await self.send_to_controller(client, DeleteAclsRequest(filters=(rules,)))
        result = answer.filter_results[0]
        raise_for_error(result.error_code, f"delete the rules for {name}")
        if not result.matching_acls and tries == 1:
            self.record_violation(f"the rule for {name} was acknowledged, and there is none to delete")

    async def _create_credential(self, client: Client, name: str, tries: int) -> None:
        credential = ScramCredentialUpsertion(
            name=name,
            mechanism=i8(ScramMechanism.SHA_256),
            iterations=i32(ITERATIONS),
            salt=f"{self.name} {name}".encode(),  # so that credentials of one user differ by administrator
            salted_password=bytes(32),
        )
        await self._alter_credentials(client, (), (credential,))

    async def _delete_credential(self, client: Client, name: str, tries: int) -> None:
        deletion = ScramCredentialDeletion(name=name, mechanism=i8(ScramMechanism.SHA_256))
        expected = ErrorCode.resource_not_found if tries > 1 else ErrorCode.none
        await self._alter_credentials(client, (deletion,), (), expected)

    async def _alter_credentials(
        self, client: Client, deletions: Any, upsertions: Any, expected: ErrorCode = ErrorCode.none
    ) -> None:
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
        result = (await self.send_to_controller(client, request)).results[0]
        if result.error_code is not expected:
            raise_for_error(result.error_code, f"alter the credential of {result.user}")

    async def _create_quota(self, client: Client, name: str, tries: int) -> None:
        await self._alter_quota(client, name, remove=False)

    async def _delete_quota(self, client: Client, name: str, tries: int) -> None:
        await self._alter_quota(client, name, remove=True)

    async def _alter_quota(self, client: Client, name: str, *, remove: bool) -> None:
        change = OpData(key=BYTE_RATE, value=f64(1000.0), remove=remove)
        entry = EntryData(entity=(EntityData(entity_type="user", entity_name=name),), ops=(change,))
        answer = await self.send_to_controller(client, AlterClientQuotasRequest(entries=(entry,), validate_only=False))
        raise_for_error(answer.entries[0].error_code, f"alter the quota of {name}")
