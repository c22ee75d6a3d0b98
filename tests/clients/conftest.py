"""Fixtures for real clients on one broker: Ottla by default, Apache Kafka with
`--against kafka`.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Browser, Page

from tests.brokers import BROKERS, BrokerProcess
from tests.browser import open_tab, run_chromium
from tests.clients.console_pages import run_console, url_of
from tests.jars import KAFKA_4_3, kafka_classpath, skip_or_fail_in_ci
from tests.ports import free_port

NewBroker = Callable[..., AbstractContextManager[BrokerProcess]]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def new_broker(broker_kind: str) -> NewBroker:
    """Runs a broker with these settings: `with new_broker(some_setting=…) as broker`."""
    return BROKERS[broker_kind]


@pytest.fixture(scope="session")
def _shared(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    with new_broker(num_partitions=1) as broker:
        yield broker


@pytest.fixture
def broker(_shared: BrokerProcess) -> BrokerProcess:
    """The broker that most tests share, each with its own topics and groups. A crashed broker is
    restarted.
    """
    if not _shared.is_running:
        _shared.start()
    return _shared


@pytest.fixture(scope="module")
def registry(new_broker: NewBroker) -> Iterator[str]:
    """URL of a schema registry, which the tests of a file share."""
    address = f"127.0.0.1:{free_port()}"
    with new_broker(**{"schema.registry.listener": address}):
        yield f"http://{address}"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A unique name for a topic or group."""
    return f"{request.function.__name__.removeprefix('test_').replace('_', '-')[:60]}-{next(_numbers)}"


@pytest.fixture(scope="session")
def classpath() -> str:
    return kafka_classpath()


@pytest.fixture(scope="session")
def newest_classpath() -> str:
    """Class path of the tools and clients of Kafka 4.3."""
    return kafka_classpath(KAFKA_4_3)


@pytest.fixture(scope="session")
def kcat() -> str:
    """The path of kcat, a Debian package that `make test` installs if it runs as root."""
    return shutil.which("kcat") or skip_or_fail_in_ci("kcat is not installed (Debian: apt-get install kcat)")


@pytest.fixture(scope="module")
def console() -> Iterator[BrokerProcess]:
    """A broker whose console the tests of a file share. The console only reads."""
    with run_console() as broker:
        yield broker


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.fixture
def tab(browser: Browser, console: BrokerProcess) -> Iterator[Page]:
    with open_tab(browser) as page:
        page.goto(url_of(console))
        yield page
