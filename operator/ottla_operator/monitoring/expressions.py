"""Expressions that several dashboards use."""

from typing import Final

from ottla_operator.monitoring.panels import Variable

BY_CLUSTER: Final = 'namespace="$namespace",cluster="$cluster"'
BROKER_STATE: Final = "kafka_server_kafkaserver_brokerstate"
NAMESPACE: Final = Variable("namespace", BROKER_STATE)
CLUSTER: Final = Variable("cluster", f'{BROKER_STATE}{{namespace="$namespace"}}')
TOPICS: Final = "kafka_server_brokertopicmetrics"
DURATIONS: Final = "ottla_request_duration_seconds_bucket"


def rate(metric: str, by: str, matchers: str = "@") -> str:
    """Increase per second of a counter, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[$__rate_interval]))"


def quantile(quantile: float, matchers: str, by: str = "request") -> str:
    """A quantile of the durations of requests."""
    return f"histogram_quantile({quantile}, {rate(DURATIONS, f'{by}, le', matchers)})"


def sum_of(metric: str, by: str = "") -> str:
    """A gauge, summed by labels."""
    return f"sum{f' by ({by})' if by else ''} ({metric}{{@}})"
