"""docs/security.md lists the rights that the operator's chart grants."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
RULE = re.compile(r"- apiGroups: \[(.*)\]\n\s+resources: \[(.*)\]\n\s+verbs: \[(.*)\]")


def rows_of_the_chart() -> Iterator[str]:
    text = (ROOT / "charts/ottla/templates/rbac.yaml").read_text()
    rights = text[: text.index("{{- $name :=")]
    for group, resources, verbs in RULE.findall(rights):
        named = "core" if group == '""' else group
        condition = ", with `rbac.secrets`" if resources == "secrets" else ""
        yield f"| {named} | {resources}{condition} | {verbs} |"


def test_page_lists_the_rights_of_the_operator() -> None:
    page = (ROOT / "docs/security.md").read_text()
    _, _, table = page.partition("| API group | resources | verbs |\n|---|---|---|\n")
    assert table.splitlines() == list(rows_of_the_chart()), "the end of docs/security.md"
