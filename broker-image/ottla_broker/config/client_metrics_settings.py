"""Settings of a subscription to clients' own metrics, which is a config resource of Kafka's type
CLIENT_METRICS (KIP-714)."""

from ottla_broker.config.client_match import CLIENT_MATCH_PARAMETERS, is_valid_match_entry
from ottla_broker.config.setting import CLIENT_METRICS_SETTINGS, Section, UpdateMode
from ottla_broker.config.value_types import integer, list_of

_client_metrics = Section(
    "Subscriptions to clients' metrics", CLIENT_METRICS_SETTINGS, UpdateMode.PER_CLIENT_METRICS_SUBSCRIPTION
)

# fmt: off
CLIENT_METRICS_METRICS = _client_metrics.row("metrics", list_of(allowed="name prefixes separated by commas, or *"), "",
    "Prefixes of the names of the metrics that the selected clients push. `*`: all metrics. Empty: none.")
CLIENT_METRICS_INTERVAL_MS = _client_metrics.row("interval.ms", integer(at_least=100, at_most=3600000), 300000,
    "Interval in milliseconds at which the selected clients push their metrics. A client uses the shortest interval of "
    "the subscriptions that select it, and never a longer one than the default, as in Kafka.")
CLIENT_METRICS_MATCH = _client_metrics.row("match",
    list_of(allowed=f"PARAMETER=REGULAR EXPRESSION separated by commas, of {', '.join(CLIENT_MATCH_PARAMETERS)}",
            check=is_valid_match_entry), "",
    "Clients that the subscription selects: those that match all entries. Empty: all clients.")
# fmt: on
