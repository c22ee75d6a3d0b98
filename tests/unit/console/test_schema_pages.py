"""The pages of schemas."""

import re
from pathlib import Path
from typing import cast

from ottla_broker.console.access import ConsoleUser
from ottla_broker.console.registry_access import find_schemas
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.registry.schema import SchemaSource
from ottla_broker.security.authorizer import Resource
from ottla_broker.security.principal import ANONYMOUS
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DescribeOnly
from tests.unit.console.console_server import MAX_PAGE_BYTES, run_console
from tests.unit.console.registered_schemas import LoadedRegistry

FIRST = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
SECOND = FIRST.replace("]}", ',{"name":"note","type":"string","default":""}]}')


def registry_with(*subjects: str) -> LoadedRegistry:
    registry = LoadedRegistry()
    for number, subject in enumerate(subjects):
        registry.register(subject, 1, 2 * number + 1, FIRST)
        registry.register(subject, 2, 2 * number + 2, SECOND)
    return registry


@async_test
async def test_page_of_a_subject_shows_its_versions_and_what_changed(tmp_path: Path) -> None:
    async with run_console(tmp_path, registry_with("t-value")) as console:
        listed = (await console.get("/schemas")).text
        assert "One subject" in listed
        assert re.search(r">t-value</a></td><td>AVRO</td><td[^>]*>2</td><td[^>]*>2</td><td[^>]*>2</td>", listed)
        page = (await console.get("/schema?subject=t-value")).text
        assert "Changes since version 1" in page
        assert re.findall(r'<span class="added">. *(.*)\n', page)[0].strip() == "},"
        assert "&#34;name&#34;: &#34;note&#34;" in page
        first = (await console.get("/schema?subject=t-value&version=1")).text
        assert "note" not in first and "Changes since" not in first
        for path, status in (
            ("/schema?subject=other", 404),
            ("/schema?subject=t-value&version=9", 404),
            ("/schema?subject=t-value&version=1&against=x", 200),
            ("/schema?subject=t-value&version=x", 400),
            ("/schema?subject=t-value&against=2", 404),
        ):
            assert (await console.get(path)).status == status, path


@async_test
async def test_schema_is_checked_without_being_registered(tmp_path: Path) -> None:
    registry = registry_with("t-value")
    async with run_console(tmp_path, registry) as console:
        form = {"name": "t-value", "type": "AVRO", "token": await console.get_form_token()}
        fine = await console.post("/schema", {**form, "schema": SECOND.replace('"note"', '"text"')})
        assert "The registry would accept it: it is compatible with version 2." in fine.text
        bad = await console.post("/schema", {**form, "schema": FIRST.replace("long", "string")})
        assert "The registry would refuse it" in bad.text and "TYPE_MISMATCH" in bad.text
        for schema, kind, reason in (
            ("{", "AVRO", "Invalid schema"),
            ("", "AVRO", "Invalid schema"),
            ("{}", "XML", "unknown schemaType"),
            ("<script>", "AVRO", "&lt;script&gt;"),
        ):
            answer = await console.post("/schema", {**form, "type": kind, "schema": schema})
            assert answer.status == 200 and reason in answer.text, (schema, answer.text)
        assert (await console.post("/schema", {**form, "schema": FIRST}, Origin="http://other")).status == 403
        assert (await console.post("/schema", {**form, "schema": "x" * (2 << 20)})).status == 413
        assert len(registry.state.versions("t-value")) == 2
        await registry.worker.close()


@async_test
async def test_subjects_of_topics_that_a_user_may_not_describe_do_not_exist_for_them(tmp_path: Path) -> None:
    async with run_console(tmp_path, registry_with("t-value", "secret-value")) as console:
        assert "secret-value" in (await console.get("/schemas")).text
        console.broker.authorizer = DescribeOnly(Resource.topic("t"))
        assert "secret-value" not in (await console.get("/schemas")).text
        hidden, missing = await console.get("/schema?subject=secret-value"), await console.get("/schema?subject=m")
        assert hidden.status == missing.status == 404
        assert hidden.text.replace("secret-value", "m") == missing.text
        form = {"name": "secret-value", "type": "AVRO", "schema": FIRST, "token": await console.get_form_token()}
        assert (await console.post("/schema", form)).status == 404
        assert "is not allowed DESCRIBE_CONFIGS" in (await console.get("/schema?subject=t-value")).text


@async_test
async def test_schemas_are_found_only_for_users_who_may_describe_one_of_their_subjects(tmp_path: Path) -> None:
    registry = registry_with("t-value", "secret-value")
    source = SchemaSource("AVRO", FIRST)
    async with run_console(tmp_path) as console:
        user = ConsoleUser(console.broker, ANONYMOUS, "127.0.0.1")
        lazy = cast(LazyRegistry, registry)
        assert await find_schemas(lazy, user, [1, 3, 99]) == {1: source, 3: source, 99: None}
        console.broker.authorizer = DescribeOnly(Resource.topic("t"))
        assert await find_schemas(lazy, user, [1, 3, 99]) == {1: source, 3: None, 99: None}


@async_test
async def test_first_page_of_ten_thousand_subjects_is_small(tmp_path: Path) -> None:
    subjects = [f"topic-{number:05d}-value" for number in range(10_000)]
    async with run_console(tmp_path, registry_with(*subjects)) as console:
        page = await console.get("/schemas")
        assert "10,000 subjects, page 1 of 100" in page.text
        assert len(page.text) < MAX_PAGE_BYTES
        assert ">topic-09999-value</a>" in (await console.get("/schemas?page=100")).text


@async_test
async def test_broker_without_a_registry_names_the_setting(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        assert "schema.registry.listener is not set" in (await console.get("/schemas")).text
        assert (await console.get("/schema?subject=x")).status == 404
