"""The list in docs/security.md has the rights that each component is given."""

from tests.component_rights import PAGE, build_list, replace_list


def test_the_list_of_what_each_component_may_do_is_current() -> None:
    page = PAGE.read_text()
    assert page == replace_list(page), "run: python -m tests.component_rights"


def test_the_list_has_rights_of_the_chart_and_no_list_or_watch_of_secrets() -> None:
    rows = build_list().splitlines()
    assert "| secrets | get, create, patch | `rbac.secrets` |" in rows
    for resource in ("leases", "nodes", "pods", "roles"):
        assert [it for it in rows if it.startswith(f"| {resource}")], resource
    assert not [it for it in rows if "secrets" in it and ("list" in it or "watch" in it)]
