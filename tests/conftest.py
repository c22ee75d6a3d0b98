"""Pytest options, suite markers and reports shared by all tests."""

import os
from collections.abc import Iterator, Sequence

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings

from tests import brokers, slow_tests, xdist_scheduling

# The time of one example depends on the machine's load more than on the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

SUITES = ("unit", "sim", "clients", "spark", "e2e", "kube")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        choices=sorted(brokers.BROKERS),
        default="ottla",
        help="broker for the tests that can run against either; a test that fails against Apache Kafka is wrong",
    )
    parser.addoption(
        "--record-responses",
        action="store_true",
        help="make tests/clients/test_same_answers.py store Apache Kafka's responses (with --against kafka)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test with its suite, the folder below tests/: `pytest tests -m "clients
    or spark"`.
    """
    for item in items:
        suite = item.nodeid.split("/")[1]
        if suite in SUITES:
            item.add_marker(suite)
    if "PYTEST_XDIST_WORKER" in os.environ:
        xdist_scheduling.sort_longest_suites_first(items)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    slow_tests.count_deselected(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    slow_tests.send_count(session)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    slow_tests.receive_count(node)


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    slow_tests.write_count(terminalreporter, config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return xdist_scheduling.create_scheduler(config, log)


@pytest.fixture(scope="session")
def broker_kind(request: pytest.FixtureRequest) -> str:
    """The value of --against: "ottla" or "kafka"."""
    return str(request.config.getoption("--against"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for broker in brokers.started_brokers:
            report.sections.append((f"output of {broker.kind} on {broker.bootstrap}", broker.log_tail(6000)))
