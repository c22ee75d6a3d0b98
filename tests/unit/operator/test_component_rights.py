"""The list of docs/security.md says what each component is given."""

from tests.component_rights import PAGE, build_list, replace_list


def test_the_list_of_what_each_component_may_do_is_current() -> None:
    page = PAGE.read_text()
    assert page == replace_list(page), "run: python -m tests.component_rights"


def test_the_list_has_secrets_by_name_only_and_every_part_of_the_chart() -> None:
    rows = build_list().splitlines()
    assert "| secrets | get, create, patch | `rbac.secrets` |" in rows
    for resource in ("leases", "nodes", "pods", "roles"):
        assert [it for it in rows if it.startswith(f"| {resource}")], resource
    assert not [it for it in rows if "secrets" in it and ("list" in it or "watch" in it)]
