"""What `ottla up` prints about resources that are removed from its files."""

from pathlib import Path

import pytest

from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.up import UpRunner
from ottla_operator.plan.schemas import FINALIZER
from tests.unit.operator import samples


@pytest.mark.parametrize(
    ("policy", "finalizers", "expected"),
    [
        ("Retain", [], ["subject flights-value is no longer described; it stays (deletionPolicy: Retain)"]),
        ("Retain", [FINALIZER], ["subject flights-value is no longer described; it stays (deletionPolicy: Retain)"]),
        ("Delete", [], ["subject flights-value is no longer described; it stays, as it was not reconciled before"]),
        ("Delete", [FINALIZER], []),
    ],
)
def test_subject_of_a_removed_schema_stays_unless_the_reconciler_deletes_it(
    tmp_path: Path, policy: str, finalizers: list[str], expected: list[str]
) -> None:
    messages: list[str] = []
    up = UpRunner([tmp_path], Home(tmp_path / "home"), LiveView(say=lambda text, kind: messages.append(text)))
    up._update(Document(tmp_path / "a.yaml", samples.schema(deletionPolicy=policy), {(): 1}))
    (resource,) = up._resources.values()
    cached = up._find_cached("Schema", "flights-value")
    assert cached is not None
    cached["metadata"]["finalizers"] = finalizers
    up._remove(resource)
    assert messages == expected
