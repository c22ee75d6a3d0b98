"""Pages of the console over HTTP, on a broker without Kafka listeners."""

import asyncio
import re
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.config import Config, SettingError
from ottla_broker.console.console import Console
from ottla_broker.console.login_methods import iter_authentication_settings
from ottla_broker.console.rendering import mark_code_spans
from ottla_broker.counted_nouns import count_noun
from ottla_broker.metadata.image import TopicImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.security.authorizer import Resource
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DescribeOnly
from tests.unit.config.api_broker import broker_with_topic
from tests.unit.console.console_server import MAX_PAGE_BYTES, run_console


@async_test
async def test_overview_shows_health_and_brokers(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        page = await console.get("/")
        assert page.status == 200
        assert "All is well: one broker" in page.text
        assert "somewhere:9092" in page.text
        part = await console.get("/", **{"HX-Request": "true"})
        assert "All is well: one broker" in part.text
        assert "<html" not in part.text
        console.broker.log_dirs[0].failure = "no <b>space</b> left"
        broken = await console.get("/")
        assert "no &lt;b&gt;space&lt;/b&gt; left" in broken.text
        assert "ottla doctor" in broken.text


@async_test
async def test_descriptions_of_configs_show_code_as_code(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        page = await console.get("/topics/t")
        assert "<code>delete</code> removes old segments" in page.text
        assert "`" not in page.text


def test_code_spans_are_escaped() -> None:
    assert mark_code_spans("`<b>` & <i>") == "<code>&lt;b&gt;</code> &amp; &lt;i&gt;"


@pytest.mark.parametrize(("count", "text"), [(0, "0 partitions"), (1, "1 partition"), (4_000, "4,000 partitions")])
def test_counts_of_partitions_are_formatted(count: int, text: str) -> None:
    assert count_noun(count, "partition") == text


@async_test
async def test_open_cluster_names_no_user(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        for path in ("/topics/t", "/topics/t/groups", "/pipelines", "/mirrors", "/"):
            assert "ANONYMOUS" not in (await console.get(path)).text, path


@async_test
async def test_every_answer_forbids_inline_scripts_and_other_sites(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        for path in (
            "/",
            "/topics",
            "/topics/t",
            "/topics/none",
            "/throughput",
            "/log-dirs",
            "/topics?page=x",
            "/group/lag?id=g",
        ):
            answer = await console.get(path)
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), path
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "Set-Cookie" not in answer.headers
            assert not re.search(r"<script(?! src=)|<style| style=| on[a-z]+=", answer.text), path


@async_test
async def test_first_page_of_ten_thousand_topics_is_small(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        image = console.broker.image
        for number in range(10_000):
            id_ = UUID(int=number + 1)
            states = {index: PartitionRecord(id_, index, (1, 2, 3), (1, 2, 3), 1) for index in range(4)}
            image.topics[f"topic-{number:05d}"] = TopicImage(f"topic-{number:05d}", id_, states)
        overview, topics = await console.get("/"), await console.get("/topics")
        assert "40,002" in overview.text
        assert "10,001 topics, page 1 of 101" in topics.text
        for page in (overview, topics):
            static_paths = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
            sizes = [int((await console.get(path)).headers["Content-Length"]) for path in static_paths]
            assert len(page.text) + sum(sizes) < MAX_PAGE_BYTES
        search_page = await console.get("/topics?search=c-0123", **{"HX-Request": "true"})
        assert "10 topics with “c-0123”" in search_page.text
        assert ">topic-09999</a>" in (await console.get("/topics?page=101")).text
        assert ">topic-09999</a>" in (await console.get("/topics?page=100000")).text


@async_test
async def test_topics_that_a_user_may_not_describe_do_not_exist_for_them(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        console.broker.image.topics["secret"] = TopicImage("secret", UUID(int=9), {})
        assert "secret" in (await console.get("/topics")).text
        console.broker.authorizer = DescribeOnly(Resource.topic("t"))
        listed = (await console.get("/topics")).text
        assert "One topic" in listed
        assert "secret" not in listed
        hidden, missing = await console.get("/topics/secret"), await console.get("/topics/missing")
        assert hidden.status == missing.status == 404
        assert hidden.text.replace("secret", "missing") == missing.text
        assert "is not allowed DESCRIBE on the cluster" in (await console.get("/")).text
        assert (await console.get("/topics/secret/growth")).status == 404
        assert (await console.get("/topics/secret/messages/export?format=csv")).status == 404
        assert (await console.get("/log-dirs")).status == 403
        assert (await console.get("/throughput")).status == 403


@async_test
async def test_requests_to_host_names_of_other_machines_are_refused(tmp_path: Path) -> None:
    async with run_console(tmp_path) as console:
        for host in ("127.0.0.1:8080", "localhost", "[::1]:80", "SOMEWHERE:9092"):
            assert (await console.get("/", Host=host)).status == 200, host
        for host in ("attacker.example", "127.0.0.1.attacker.example"):
            assert (await console.get("/", Host=host)).status == 421, host


@pytest.mark.parametrize("path", ["/static/0000000000000000/console.js", "/static/x/..%2F..%2Fconsole.py"])
@async_test
async def test_static_files_are_served_under_their_digest_only(tmp_path: Path, path: str) -> None:
    async with run_console(tmp_path) as console:
        assert (await console.get(path)).status == 404


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"authorizer.class.name": "StandardAuthorizer"}, "authorizer.class.name="),
        (
            {
                "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
                "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
                "inter.broker.listener.name": "IN",
            },
            "listener OUT has SASL_PLAINTEXT",
        ),
    ],
)
def test_cluster_that_authenticates_its_clients_is_recognized(settings: dict[str, str], reason: str) -> None:
    config = Config.of({"log.dirs": "/data", "sasl.enabled.mechanisms": "SCRAM-SHA-512", **settings})
    assert any(found.startswith(reason) for found in iter_authentication_settings(config))


def test_console_refuses_an_authorizer_without_a_login(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:ANONYMOUS"}
        async with broker_with_topic(tmp_path, **settings) as broker:
            with pytest.raises(SettingError, match="give a listener PLAIN or SCRAM"):
                Console(broker, None)  # type: ignore[arg-type]

    assert list(iter_authentication_settings(Config.of({"log.dirs": "/data"}))) == []
    asyncio.run(scenario())
