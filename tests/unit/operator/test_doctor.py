"""How `ottla doctor` evaluates what it observes."""

import copy
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ottla_operator.crd_files import build_crd
from ottla_operator.doctor import brokers, kubernetes, machine, operator_rights
from ottla_operator.doctor.finding import Severity
from ottla_operator.kafka.cluster import OFFLINE, UNDER_REPLICATED, BrokerInfo, PartitionProblem
from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.resources import crds
from tests.unit.async_tests import async_test

DAY_S = 86_400.0
GIB = 1 << 30


@pytest.mark.parametrize(
    ("soft", "hard", "severity", "next_step"),
    [
        (-1, -1, Severity.good, ""),
        (4096, 4096, Severity.good, ""),
        (1024, 524_288, Severity.warning, "ulimit -n 4096"),
        (1024, 2048, Severity.warning, "ulimit -n 2048"),
        (1024, 1024, Severity.warning, "raise the hard limit in /etc/security/limits.conf"),
    ],
)
def test_few_open_files_are_a_warning(soft: int, hard: int, severity: Severity, next_step: str) -> None:
    found = machine.evaluate_open_files(soft, hard)
    assert (found.severity, found.next_step) == (severity, next_step)


@pytest.mark.parametrize(
    ("free", "total", "is_writable", "severity"),
    [
        (50 * GIB, 100 * GIB, True, Severity.good),
        (4 * GIB, 100 * GIB, True, Severity.warning),
        (GIB - 1, 2 * GIB, True, Severity.warning),
        (50 * GIB, 100 * GIB, False, Severity.problem),
    ],
)
def test_a_disk_needs_room_and_the_right_to_write(free: int, total: int, is_writable: bool, severity: Severity) -> None:
    assert machine.evaluate_disk(Path("/data"), free, total, is_writable=is_writable).severity is severity


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("", None),
        ("Unrecognized option: -version", None),
    ],
)
def test_the_version_of_java_is_read(line: str, major: int | None) -> None:
    assert machine.java_major(line) == major
    expected = Severity.good if major is not None and major >= 17 else Severity.warning
    assert machine.evaluate_java(None, "/usr/bin/java", line).severity is expected


def test_a_cluster_without_a_controller_is_a_problem() -> None:
    assert brokers.evaluate_controller(2).severity is Severity.good
    assert "ottla cluster recover" in brokers.evaluate_controller(-1).next_step


def test_a_broker_that_is_down_is_named() -> None:
    registered = [BrokerInfo(1, "a", 9092, None), BrokerInfo(2, "b", 9092, None, is_fenced=True)]
    (found,) = brokers.find_fenced_brokers(registered)
    assert (found.subject, found.severity) == ("broker 2", Severity.problem)


def test_partitions_without_a_leader_are_worse_than_under_replicated_ones() -> None:
    behind = PartitionProblem("t", 0, UNDER_REPLICATED, 1, (1,), (1, 2))
    offline = PartitionProblem("t", 1, OFFLINE, -1, (), (2,))
    assert brokers.evaluate_partitions(3, []).severity is Severity.good
    assert brokers.evaluate_partitions(3, [behind]).severity is Severity.warning
    worst = brokers.evaluate_partitions(3, [behind, offline])
    assert (worst.severity, worst.observed) == (Severity.problem, "1 of 3 partitions without a leader")


def test_a_certificate_that_expires_soon_is_a_warning() -> None:
    assert brokers.evaluate_certificate("broker 1", 90 * DAY_S, now=0.0).severity is Severity.good
    found = brokers.evaluate_certificate("broker 1", 3 * DAY_S, now=0.0)
    assert (found.severity, found.observed) == (Severity.warning, "its certificate expires in 3.0 d")


def test_a_definition_of_another_version_names_a_field_that_it_lacks() -> None:
    (kind,) = (it for it in crds.KINDS if it.name == "Topic")
    own = build_crd(kind)
    assert kubernetes.evaluate_crd("Topic", own, own).severity is Severity.good
    assert kubernetes.evaluate_crd("Topic", own, None).severity is Severity.problem
    older = copy.deepcopy(own)
    del older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["partitions"]
    found = kubernetes.evaluate_crd("Topic", own, older)
    assert (found.severity, found.observed) == (Severity.warning, "of another version: it lacks spec.partitions")


@pytest.mark.parametrize(
    ("is_synchronised", "error_s", "severity", "observed"),
    [
        (True, 0.002, Severity.good, "synchronised, within 2 ms"),
        (True, 16.0, Severity.warning, "it may be wrong by 16 s"),
        (False, 0.0, Severity.warning, "not synchronised"),
        (None, 0.0, Severity.skipped, "does not say"),
    ],
)
def test_a_clock_that_is_not_synchronised_is_a_warning(
    is_synchronised: bool | None, error_s: float, severity: Severity, observed: str
) -> None:
    found = machine.evaluate_clock(is_synchronised, error_s)
    assert found.severity is severity and observed in found.observed


def test_a_port_that_another_process_has_is_a_problem() -> None:
    assert machine.evaluate_port(9092, is_free=True).severity is Severity.good
    assert machine.evaluate_port(9092, is_free=False, broker="demo-1").severity is Severity.good
    assert machine.evaluate_port(9092, is_free=False).severity is Severity.problem


@pytest.mark.skipif(sys.platform != "linux", reason="adjtimex is Linux's")
def test_the_clock_s_state_is_read_from_the_kernel() -> None:
    is_synchronised, error_s = machine.read_clock()
    assert is_synchronised is not None and 0 <= error_s <= 16, "the kernel's bound is 16 s"


class Reviewer:
    """An API server on which a service account has only these rights, as (verb and resource,
    namespace). It rejects every review if `allowed` is None.
    """

    def __init__(self, allowed: set[tuple[str, str | None]] | None) -> None:
        self._allowed = allowed
        self.users: set[str] = set()

    async def create(self, review: dict[str, Any]) -> dict[str, Any]:
        if self._allowed is None:
            raise ApiError(403, "no")
        spec = review["spec"]
        self.users.add(spec["user"])
        at = spec["resourceAttributes"]
        resource = "/".join(filter(None, (at["resource"], at["subresource"])))
        return {"status": {"allowed": (f"{at['verb']} {resource}", at.get("namespace")) in self._allowed}}


def operator_deployment(namespaces: str = "") -> dict[str, Any]:
    env = [{"name": "POD_NAMESPACE", "valueFrom": {}}, {"name": "OTTLA_NAMESPACES", "value": namespaces}]
    pod = {"serviceAccountName": "ottla-operator", "containers": [{"env": env}]}
    return {"metadata": {"namespace": "ottla"}, "spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("lacks", "severity", "observed"),
    [
        ([], Severity.good, "it may do what it has to"),
        (["watch accesspolicies"], Severity.problem, "it may not watch accesspolicies in namespace b"),
        (["patch mirrors/status"], Severity.problem, "it may not patch mirrors/status in namespace b"),
        (["patch statefulsets"], Severity.problem, "it may not patch statefulsets in namespace b"),
        (["patch secrets"], Severity.warning, "it may not patch secrets in namespace b"),
        (
            ["patch secrets", "delete pods", "patch clusters/status"],
            Severity.problem,
            "it may not patch clusters/status in namespace b, and lacks 1 other right",
        ),
    ],
)
@async_test
async def test_a_right_that_the_operator_lacks_is_named(lacks: list[str], severity: Severity, observed: str) -> None:
    rights = [str(it) for it in (*operator_rights.RIGHTS, operator_rights.SECRETS)]
    allowed: set[tuple[str, str | None]] = {
        (it, namespace) for it in rights for namespace in ("a", "b") if namespace == "a" or it not in lacks
    }
    reviewer = Reviewer(allowed)
    found = await operator_rights.examine_rights(cast(ApiClient, reviewer), operator_deployment("a,b"))
    assert (found.severity, found.observed, found.subject) == (severity, observed, "rights of ottla/ottla-operator")
    assert reviewer.users == {"system:serviceaccount:ottla:ottla-operator"}


@async_test
async def test_rights_are_examined_in_all_namespaces_unless_some_are_watched() -> None:
    reviewer = cast(ApiClient, Reviewer({("watch clusters", None)}))
    found = await operator_rights.examine_rights(reviewer, operator_deployment())
    assert found.observed.startswith("it may not watch topics in all namespaces, and lacks ")
    refused = await operator_rights.examine_rights(cast(ApiClient, Reviewer(None)), operator_deployment())
    assert refused.severity is Severity.skipped


def test_the_rights_are_among_those_of_the_chart() -> None:
    text = (Path(__file__).parents[3] / "charts/ottla/templates/rbac.yaml").read_text()
    rules = re.findall(r"- apiGroups: (\[.*\])\n  resources: (\[.*\])\n  verbs: (\[.*\])", text)
    granted = {
        (verb, group, resource)
        for groups, resources, verbs in (map(yaml.safe_load, rule) for rule in rules)
        for group in groups
        for resource in resources
        for verb in verbs
    }
    needed = {(it.verb, it.group, it.resource) for it in (*operator_rights.RIGHTS, operator_rights.SECRETS)}
    assert len(rules) > 10 and needed <= granted, needed - granted


def test_an_operator_without_an_available_pod_is_a_problem() -> None:
    deployment = {"metadata": {"namespace": "ottla", "name": "ottla"}, "status": {"availableReplicas": 1}}
    assert kubernetes.evaluate_operator([deployment]).severity is Severity.good
    assert kubernetes.evaluate_operator([]).observed == "not installed"
    found = kubernetes.evaluate_operator([{**deployment, "status": {}}])
    assert found.severity is Severity.problem and "--namespace ottla" in found.next_step
