"""The register in a Lease on a real API server: what people read in it, which permissions it needs,
and the errors without them.
"""

import asyncio
import re
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from ottla_broker.metadata.quorum_rules import Voter
from ottla_broker.metadata.register import RegisterError, RegisterValue, VersionedValue
from ottla_broker.metadata.register.api_server import ApiServer, CredentialSource
from ottla_broker.metadata.register.kubernetes import KubernetesRegister
from tests.kube.api_client import Json
from tests.kube.control_plane import ControlPlane
from tests.kube.programs import find_program

ME = Voter(1, UUID(int=1), "one:9091")
VALUE = RegisterValue("c", 4, 1, (ME,), (1,), 1, 1_784_000_000_123, 3000)
LEASE = {"labels": {"app.kubernetes.io/managed-by": "ottla"}, "annotations": {"example.com/kept": "yes"}}
RIGHTS = ("get", "watch", "patch")

Work = Callable[[KubernetesRegister], Awaitable[None]]


@dataclass
class Namespace:
    """One of a test's own, with an account `broker` in it whose token lies in a file."""

    plane: ControlPlane
    name: str
    token: Path

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        return self.plane.admin.request(method, path.format(n=f"namespaces/{self.name}"), body)

    def make_lease(self, name: str = "demo") -> Json:
        return self.ask("POST", "/apis/coordination.k8s.io/v1/{n}/leases", {"metadata": LEASE | {"name": name}})

    def lease(self) -> Json:
        return self.ask("GET", "/apis/coordination.k8s.io/v1/{n}/leases/demo")

    def grant(self, verbs: Sequence[str], lease: str = "demo") -> None:
        """To the account `broker`, on one Lease."""
        rights = "/apis/rbac.authorization.k8s.io/v1/{n}"
        rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": list(verbs)}
        self.ask("POST", f"{rights}/roles", {"metadata": {"name": "b"}, "rules": [rule | {"resourceNames": [lease]}]})
        subject = {"kind": "ServiceAccount", "name": "broker", "namespace": self.name}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "b"}
        binding = {"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role}
        self.ask("POST", f"{rights}/rolebindings", binding)

    def server(self) -> ApiServer:
        """As a pod of that account finds it."""
        return ApiServer(
            self.plane.url, CredentialSource(file=self.plane.authority.certificate), CredentialSource(file=self.token)
        )

    def run(self, work: Work, *, lease: str = "demo") -> None:
        async def run() -> None:
            register = KubernetesRegister(f"{self.name}/{lease}", self.server())
            try:
                await work(register)
            finally:
                await register.close()

        asyncio.run(run())


@pytest.fixture
def namespace(plane: ControlPlane, tmp_path: Path) -> Namespace:
    name = f"ns-{uuid4().hex[:8]}"
    plane.admin.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    made = Namespace(plane, name, tmp_path / "token")
    made.ask("POST", "/api/v1/{n}/serviceaccounts", {"metadata": {"name": "broker"}})
    token = made.ask("POST", "/api/v1/{n}/serviceaccounts/broker/token", {"spec": {"expirationSeconds": 3600}})
    made.token.write_text(token["status"]["token"])
    return made


def test_a_lease_that_the_operator_made_is_an_empty_register_and_stays_its_own(namespace: Namespace) -> None:
    made = namespace.make_lease()
    namespace.grant(RIGHTS)

    async def work(register: KubernetesRegister) -> None:
        seen = await register.read()
        assert seen == VersionedValue(None, made["metadata"]["resourceVersion"])
        assert (await register.swap(seen, VALUE)).value == VALUE

    namespace.run(work)
    after = namespace.lease()["metadata"]
    assert after["uid"] == made["metadata"]["uid"]
    assert after["labels"] == LEASE["labels"]
    assert LEASE["annotations"].items() <= after["annotations"].items()


def test_what_people_read_of_it_is_true(namespace: Namespace, plane: ControlPlane) -> None:
    namespace.make_lease()
    namespace.grant(RIGHTS)

    async def work(register: KubernetesRegister) -> None:
        seen = await register.swap(await register.read(), VALUE)
        spec = (await asyncio.to_thread(namespace.lease))["spec"]
        assert spec == {
            "holderIdentity": "broker-1",
            "leaseDurationSeconds": 3,
            "leaseTransitions": 4,
            "renewTime": "2026-07-14T03:33:20.123000Z",
        }
        kubectl = [str(find_program("control-plane")), "kubectl", "--kubeconfig", str(plane.kubeconfig())]
        table = await asyncio.to_thread(
            subprocess.check_output, [*kubectl, "-n", namespace.name, "get", "lease"], text=True
        )
        assert re.search(r"^demo\s+broker-1\s", table, re.M), table
        await register.swap(seen, msgspec.structs.replace(VALUE, epoch=5, holder=-1))
        assert "holderIdentity" not in (await asyncio.to_thread(namespace.lease))["spec"]

    namespace.run(work)


def test_three_rights_on_one_lease_are_enough(namespace: Namespace) -> None:
    namespace.make_lease()
    namespace.make_lease("other")
    namespace.grant(RIGHTS)

    async def work(register: KubernetesRegister) -> None:
        seen = await register.swap(await register.read(), VALUE)
        watching = asyncio.create_task(register.watch(seen, 20))
        await asyncio.wait({watching}, timeout=0.2)
        changed = await register.swap(seen, msgspec.structs.replace(VALUE, epoch=5))
        assert await watching == changed

    namespace.run(work)

    async def refused(register: KubernetesRegister) -> None:
        with pytest.raises(RegisterError, match=f"the right to get Lease {namespace.name}/other .* is missing"):
            await register.read()

    namespace.run(refused, lease="other")


@pytest.mark.parametrize("missing", RIGHTS)
def test_a_missing_right_is_named(namespace: Namespace, missing: str) -> None:
    namespace.make_lease()
    namespace.grant([right for right in RIGHTS if right != missing])

    async def work(register: KubernetesRegister) -> None:
        calls: dict[str, Callable[[], Awaitable[VersionedValue]]] = {
            "get": register.read,
            "watch": lambda: register.watch(VersionedValue(None, ""), 5),
            "patch": lambda: register.swap(VersionedValue(None, "1"), VALUE),
        }
        with pytest.raises(
            RegisterError,
            match=rf"the right to {missing} Lease {namespace.name}/demo \(coordination.k8s.io\) is missing.*"
            rf'User "system:serviceaccount:{namespace.name}:broker" cannot {missing} resource "leases"',
        ):
            await calls[missing]()

    namespace.run(work)


def test_a_lease_that_nobody_made_takes_the_right_to_create(namespace: Namespace) -> None:
    namespace.grant(RIGHTS)

    async def work(register: KubernetesRegister) -> None:
        with pytest.raises(RegisterError, match=f"the right to create leases in namespace {namespace.name} "):
            await register.swap(await register.read(), VALUE)

    namespace.run(work)


def test_a_namespace_that_is_not_there_is_named(plane: ControlPlane) -> None:
    async def run() -> None:
        server = ApiServer.from_environment({"KUBECONFIG": str(plane.kubeconfig())})
        register = KubernetesRegister("nowhere/demo", server)
        try:
            with pytest.raises(RegisterError, match="there is no namespace nowhere to make the Lease nowhere/demo in"):
                await register.swap(await register.read(), VALUE)
        finally:
            await register.close()

    asyncio.run(run())


def test_a_deleted_lease_is_a_conflict_and_then_an_empty_register(namespace: Namespace) -> None:
    namespace.make_lease()
    namespace.grant(RIGHTS)

    async def work(register: KubernetesRegister) -> None:
        seen = await register.swap(await register.read(), VALUE)
        watching = asyncio.create_task(register.watch(seen, 20))
        await asyncio.wait({watching}, timeout=0.2)
        await asyncio.to_thread(namespace.ask, "DELETE", "/apis/coordination.k8s.io/v1/{n}/leases/demo")
        assert await watching == VersionedValue(None, "") == await register.read()
        watching = asyncio.create_task(register.watch(VersionedValue(None, ""), 20))
        await asyncio.to_thread(namespace.make_lease)
        found = await watching
        assert found.value is None
        assert (await register.swap(found, VALUE)).value == VALUE

    namespace.run(work)


def test_a_token_that_is_replaced_is_used_at_once(namespace: Namespace) -> None:
    namespace.make_lease()
    namespace.grant(RIGHTS)
    good = namespace.token.read_text()
    namespace.token.write_text("stale")

    async def work(register: KubernetesRegister) -> None:
        with pytest.raises(
            RegisterError, match=r"^the API server at https://\S+ does not know who asks: Unauthorized$"
        ):
            await register.read()
        namespace.token.write_text(good)
        assert (await register.read()).value is None

    namespace.run(work)


def test_an_api_server_that_is_not_to_be_trusted_is_told_nothing(namespace: Namespace) -> None:
    async def run() -> None:
        stranger = ApiServer(namespace.plane.url, CredentialSource(), CredentialSource(file=namespace.token))
        register = KubernetesRegister(f"{namespace.name}/demo", stranger)
        try:
            for call in (register.read, lambda: register.watch(VersionedValue(None, ""), 5)):
                with pytest.raises(RegisterError, match="certificate verify failed"):
                    await call()
        finally:
            await register.close()

    asyncio.run(run())


def test_watching_costs_one_stream(namespace: Namespace) -> None:
    namespace.make_lease()
    namespace.grant(RIGHTS)

    def watches() -> float:
        text = namespace.plane.admin.request_text("GET", "/metrics")
        wanted = r'^apiserver_request_total\{.*resource="leases".*verb="WATCH"\} (\S+)$'
        running = r'^apiserver_longrunning_requests\{.*resource="leases".*verb="WATCH"\} (\S+)$'
        return sum(float(found[1]) for pattern in (wanted, running) for found in re.finditer(pattern, text, re.M))

    async def work(register: KubernetesRegister) -> None:
        seen = await register.swap(await register.read(), VALUE)
        assert await register.watch(seen, 1) == seen
        before = await asyncio.to_thread(watches)
        for epoch in range(5, 25):
            assert await register.watch(seen, 0.02) == seen
            assert seen.value is not None
            seen = await register.swap(seen, msgspec.structs.replace(seen.value, epoch=epoch))
        assert await asyncio.to_thread(watches) == before

    namespace.run(work)
