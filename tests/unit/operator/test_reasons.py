"""Every reason that the operator uses is listed in plan/reasons.py, and the page that lists them is current."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ottla_operator.plan import reasons

ROOT = Path(__file__).parents[3]
PACKAGES = ("plan", "reconcile", "kube", "local")
FILES = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / "operator/ottla_operator" / package).rglob("*.py"))
    if path.name != "reasons.py"
]
TREES = {path: ast.parse(path.read_text()) for path in FILES}
CONDITIONS = {it.name for section in reasons.CONDITION_REASONS.values() for it in section}
EVENTS = {it.name for it in reasons.EVENT_REASONS}
REASON_AT = {"Ready": 1, "Reconciling": 0, "Stalled": 0, "ExtraCondition": 2}
"""Position of the reason among the arguments."""
NAME = re.compile(r"[A-Z][A-Za-z]+")


def assigned(tree: ast.AST, name: str) -> Iterator[str]:
    """Reasons that a variable or constant of a file may have."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(it, ast.Name) and it.id == name for it in targets):
            values = [it.value for it in ast.walk(node.value) if isinstance(it, ast.Constant)]
            yield from (it for it in values if isinstance(it, str) and NAME.fullmatch(it))


def names_of(tree: ast.AST, node: ast.expr) -> set[str]:
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    if isinstance(node, ast.Name):
        return {*assigned(tree, node.id)} or {name for it in TREES.values() for name in assigned(it, node.id)}
    return set()


def used_by_conditions() -> set[str]:
    found = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REASON_AT:
                position = REASON_AT[node.func.id]
                if len(node.args) > position:
                    names = names_of(tree, node.args[position])
                    assert names, f"cannot tell the reason of {ast.unparse(node)}"
                    found |= names
    return found


def used_by_events() -> set[str]:
    found = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                arguments = {"record_event": node.args[1:2], "record": node.args[1:2], "_event": node.args[:1]}
                for argument in arguments.get(node.func.attr, []):
                    found |= names_of(tree, argument) if isinstance(argument, ast.Constant) else set()
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "event":
                found |= names_of(tree, node.value) if node.value is not None else set()
            if isinstance(node, ast.Tuple) and len(node.elts) == 2 and _is_event(node):
                found |= names_of(tree, node.elts[0])
    return found


def _is_event(pair: ast.Tuple) -> bool:
    """True for a literal (reason, message), as reconcilers collect them: the message is no other name."""
    reason, message = pair.elts
    is_reason = (
        isinstance(reason, ast.Constant) and isinstance(reason.value, str) and bool(NAME.fullmatch(reason.value))
    )
    is_message = isinstance(message, ast.JoinedStr) or (
        isinstance(message, ast.Name | ast.Attribute)
        and ast.unparse(message).rpartition(".")[2] in ("said", "in_progress")
    )
    return is_reason and is_message


def test_every_condition_reason_is_listed_and_every_listed_one_is_used() -> None:
    used = used_by_conditions() | {"Reconciled", "WaitingForOperator"}  # defaults: of Ready, and of the CRDs
    assert used - CONDITIONS == set()
    assert CONDITIONS - used == set()


def test_every_event_reason_is_listed_and_every_listed_one_is_used() -> None:
    used = used_by_events()
    assert used - EVENTS - CONDITIONS == set()
    assert EVENTS - used == set()


def test_the_page_of_conditions_is_current() -> None:
    assert (ROOT / "docs/conditions.md").read_text() == reasons.conditions_page()
