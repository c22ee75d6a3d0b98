"""The list "What each component may do" of docs/security.md, from what each component is given.

`python -m tests.component_rights` writes it. The operator's rights in Kubernetes are those of the
chart, a driver's are those of the Role that the operator creates for it, and rights in a cluster
are the rules of the Users that the operator creates. Names in the list are those of the examples
below.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

from ottla_broker.security.authorizer import ResourceType
from ottla_broker.security.restricted_super_users import parse_restricted_super_users
from ottla_operator.plan.acl_patterns import camel_case, describe_entry
from ottla_operator.plan.component_users import mirror_user, pipeline_user
from ottla_operator.plan.inter_broker_login import (
    BROKER_USERS,
    OPERATOR_USERS,
    InterBrokerLogin,
    restricted_super_users,
    super_users,
)
from ottla_operator.plan.objects.broker_pod import BrokerImages, StartInputs, pod_template
from ottla_operator.plan.pipeline.desired import DRIVER_RULES
from ottla_operator.plan.users import desired_user
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.user import User

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "security.md"
RIGHTS: Final = ROOT / "charts" / "ottla" / "templates" / "rbac.yaml"
BEGIN: Final = "<!-- begin: python -m tests.component_rights -->\n"
END: Final = "<!-- end -->\n"
_CONDITION: Final = re.compile(r"\{\{- if \.Values\.(?P<value>[\w.]+) \}\}")
_METADATA: Final = {"namespace": "default", "generation": 1}

CLUSTER: Final = Cluster.parse(
    {
        "apiVersion": "ottla.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "main", **_METADATA},
        "spec": {
            "replicas": 3,
            "listeners": [{"name": "clients", "port": 9094, "authentication": "SCRAM"}],
            "authorization": {"type": "ACL"},
            "storage": {"size": "1Gi"},
        },
    }
)
PIPELINE: Final = Pipeline.parse(
    {
        "apiVersion": "ottla.dev/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "hourly", **_METADATA},
        "spec": {
            "clusterRef": {"name": "main"},
            "sources": {"orders": {"topic": "orders", "format": {"type": "json", "schema": "id INT"}}},
            "transforms": [{"name": "large", "sql": "SELECT * FROM orders"}],
            "sinks": [{"name": "large", "from": "large", "topic": "large-orders"}],
            "deadLetter": {"topic": "rejected"},
        },
    }
)
MIRROR: Final = Mirror.parse(
    {
        "apiVersion": "ottla.dev/v1alpha1",
        "kind": "Mirror",
        "metadata": {"name": "west", **_METADATA},
        "spec": {
            "source": {"clusterRef": {"name": "main"}},
            "target": {"clusterRef": {"name": "other"}},
            "topics": ["orders*"],
            "groups": ["billing"],
        },
    }
)


def build_list() -> str:
    """The text between the marks, in Markdown."""
    return "\n".join(
        [
            "| component | in a cluster with access rules | in Kubernetes |",
            "|---|---|---|",
            f"| broker | everything: {_users(BROKER_USERS)} is a super user | {_broker_rights()} |",
            f"| operator | as {_users(OPERATOR_USERS)}: {_operator_rights()} "
            "| what is listed below, in the namespaces that it watches |",
            f"| driver of a Pipeline: `hourly` reads `orders`, writes `large-orders` and rejects to `rejected` "
            f"| {_rules(pipeline_user(PIPELINE, CLUSTER))} | {_rights(DRIVER_RULES)} |",
            f"| brokers of a Mirror's target, at the source: `west` mirrors `orders*` and the group `billing` "
            f"| {_rules(mirror_user(MIRROR, CLUSTER))} | nothing |",
            "| `ottla` commands | what their user may | what your kubeconfig may |",
            "",
            "The operator in Kubernetes, by its chart:",
            "",
            "| resources | verbs | if |",
            "|---|---|---|",
            *_chart_rows(),
            "",
        ]
    )


def _users(names: Sequence[str]) -> str:
    """The principals of a component, one of which is in use."""
    return " or ".join(f"`User:{it}`" for it in names)


def _broker_rights() -> str:
    """What brokers may do in Kubernetes. Raises AssertionError if their pods have any rights."""
    spec = pod_template(CLUSTER, BrokerImages("broker", "1"), "settings", StartInputs())["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert super_users(InterBrokerLogin.REQUIRED) == [f"User:{it}" for it in BROKER_USERS]
    return "nothing: no token of an account is mounted"


def _operator_rights() -> str:
    """What `restricted.super.users` of the brokers gives the operator, by type of resources."""
    users = parse_restricted_super_users(restricted_super_users(InterBrokerLogin.REQUIRED))
    assert [*users] == [f"User:{it}" for it in OPERATOR_USERS]
    rights = users[f"User:{OPERATOR_USERS[0]}"]
    assert all(it == rights for it in users.values())
    by_type = {
        kind: ", ".join(camel_case(operation.name) for other, operation in sorted(rights) if other is kind)
        for kind in sorted({kind for kind, _ in rights})
    }
    return "; ".join(
        f"{operations} on {'the cluster' if kind is ResourceType.cluster else f'every {kind.name}'}"
        for kind, operations in by_type.items()
    )


def _rules(user: Json) -> str:
    name = user["metadata"]["name"]
    acls = desired_user(User.parse(user), name, {}, is_password_set=True).acls
    assert acls
    return f"as `User:{name}`: " + "; ".join(sorted(describe_entry(it).removesuffix(f" to User:{name}") for it in acls))


def _rights(rules: Iterable[Json]) -> str:
    return "; ".join(f"{_resources(it)}: {', '.join(it['verbs'])}" for it in rules) + ", in its namespace"


def _resources(rule: Json) -> str:
    names = rule.get("resourceNames")
    return ", ".join(rule["resources"]) + (f" named {', '.join(names)}" if names else "")


def _chart_rows() -> Iterator[str]:
    """The rules of the chart's template, with the value on which each depends."""
    for condition, text in _rule_blocks(RIGHTS.read_text()):
        for rule in yaml.safe_load(text) or []:
            group = rule["apiGroups"][0]
            where = f" ({group})" if group else ""
            only = f"`{condition}`" if condition else ""
            yield f"| {', '.join(rule['resources'])}{where} | {', '.join(rule['verbs'])} | {only} |"


def _rule_blocks(template: str) -> Iterator[tuple[str, str]]:
    """(value of the chart, rules in YAML) of each list of rules; the value is empty for rules that
    depend on none. Raises ValueError for a rule that depends on anything else than one value,
    because the list could not say so.
    """
    rights = template.partition('{{- define "ottla.rights" }}\n')[2].partition("{{- $name")[0]
    lines: list[str] = []
    condition = ""
    for line in rights.splitlines():
        if (found := _CONDITION.search(line)) is not None or line == "{{- end }}":
            yield condition, "\n".join(lines)
            lines, condition = [], found["value"] if found is not None else ""
        elif "{{" in line:
            raise ValueError(f"{RIGHTS.name}: {line}")
        else:
            lines.append(line)
    rest = template.partition("{{- $name")[2]
    for part in rest.split("---\n"):
        literal = re.search(r"^rules:\n((?:  .*\n)+)", part, re.MULTILINE)
        if literal is not None:
            is_of_nodes = "-nodes\n" in part
            yield ("rbac.nodes" if is_of_nodes else ""), literal[1]


def replace_list(page: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no marks of the list"
    return f"{before}{BEGIN}\n{build_list()}\n{END}{after}"


def main() -> None:
    PAGE.write_text(replace_list(PAGE.read_text()))


if __name__ == "__main__":
    main()
