"""Shared by all tests: which broker the client tests run against, and what a broker said when a test fails."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import brokers, streams

# How long an example takes says something of the machine and of what else it does, not of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        choices=sorted(brokers.BROKERS),
        default="ottla",
        help="the broker that tests/clients run against. A test that fails against Apache Kafka is a wrong test.",
    )
    parser.addoption(
        "--record-answers",
        action="store_true",
        help="tests/clients/test_same_answers.py writes down what Apache Kafka answers (with --against kafka).",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        streams.longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return streams.scheduling(config, log)


@pytest.fixture(scope="session")
def against(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--against"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for broker in brokers.running:
            report.sections.append((f"{broker.kind} on {broker.bootstrap} wrote", broker.log_tail(6000)))
