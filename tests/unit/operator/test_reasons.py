"""The operator uses the reasons that plan/reasons.py lists, all of them and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ottla_operator.plan import reasons

ROOT = Path(__file__).parents[3]
OPERATOR = ROOT / "operator" / "ottla_operator"
REASON_ARGUMENT = {"Ready": 1, "Reconciling": 0, "Stalled": 0, "ExtraCondition": 2, "record_event": 1, "record": 1}
REASON_ARGUMENT |= {"_record_event": 0, "_find_cluster": 2, "ClusterEvent": 0}
CAMEL_CASE = re.compile("[A-Z]+[a-z][A-Za-z]+")
LISTED = {reason.name for _, section in reasons.SECTIONS for reason in section}


def test_every_reason_that_the_operator_uses_is_listed_and_every_listed_one_is_used() -> None:
    used = {name for file in OPERATOR.rglob("*.py") for name in reasons_used_in(ast.parse(file.read_text()))}
    assert used - LISTED == set(), "not listed in plan/reasons.py"
    assert LISTED - used == set(), "listed in plan/reasons.py and not used"


def test_the_search_finds_each_way_to_use_a_reason() -> None:
    source = """
NAMED: Final = "Named"
@dataclass
class Ready:
    reason: str = "Default"
class Change:
    event: ClassVar[str] = "ClassEvent"
def f():
    reason = "OneOf" if x else "Other"
    Stalled(NAMED, "text")
    self._record_event("Recorded", text)
    return {"reason": "InStatus"}
"""
    found = set(reasons_used_in(ast.parse(source)))
    assert found == {"Named", "Default", "ClassEvent", "OneOf", "Other", "Recorded", "InStatus"}


def test_no_reason_is_listed_twice_and_the_page_is_current() -> None:
    names = [reason.name for _, section in reasons.SECTIONS for reason in section]
    assert len(names) == len(set(names))
    page = (ROOT / "docs" / "conditions.md").read_text(encoding="utf-8")
    assert page == reasons.render_page(), "run: python -m ottla_operator.plan.reasons > docs/conditions.md"


def reasons_used_in(module: ast.Module) -> Iterator[str]:
    """String constants that are a reason: arguments of conditions and events, and values
    of `event` and `reason`.
    """
    constants = {target: value for node in module.body for target, value in assignments(node)}
    for node in ast.walk(module):
        for target, value in assignments(node):
            if target in ("event", "reason"):
                yield from strings(value, constants)
        if isinstance(node, ast.Call):
            yield from strings(reason_of_call(node), constants)
        elif isinstance(node, ast.Dict):
            for key, entry in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "reason":
                    yield from strings(entry, constants)


def assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        yield node.targets[0].id, node.value
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value


def called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def reason_of_call(call: ast.Call) -> ast.expr | None:
    position = REASON_ARGUMENT.get(called_name(call))
    if position is None:
        return None
    named = next((it.value for it in call.keywords if it.arg == "reason"), None)
    return call.args[position] if len(call.args) > position else named


def strings(node: ast.expr | None, constants: dict[str, ast.expr]) -> Iterator[str]:
    """CamelCase constants that the expression may be."""
    if isinstance(node, ast.IfExp):
        yield from strings(node.body, constants)
        yield from strings(node.orelse, constants)
    elif isinstance(node, ast.Name) and node.id in constants:
        yield from strings(constants[node.id], {})
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and CAMEL_CASE.fullmatch(node.value):
        yield node.value
