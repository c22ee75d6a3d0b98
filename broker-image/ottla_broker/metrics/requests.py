"""Requests: their number, duration and phases, those that wait, and how busy the thread of
requests is.
"""

from ottla_broker.metrics.declaration import counter, gauge, metric

REQUESTS = counter("kafka_network_requestmetrics_requests_total", "Requests received, by API.", "request")
REQUEST_DURATION = metric(
    "histogram",
    "ottla_request_duration_seconds",
    "Duration of requests by API and phase. queue: wait to be served. local: processing. remote: wait for replicas, "
    "records, members or the controller. send: time for which a client left a response unread; other responses are "
    "not counted. total: queue, local and remote.",
    "request",
    "phase",
)
REQUEST_QUANTILES = {
    phase: metric(
        "summary",
        f"kafka_network_requestmetrics_{name}timems",
        f"Milliseconds of the phase {phase} of ottla_request_duration_seconds; quantiles of the last five minutes.",
        "request",
    )
    for phase, name in (
        ("queue", "requestqueue"),
        ("local", "local"),
        ("remote", "remote"),
        ("send", "responsesend"),
        ("total", "total"),
    )
}
EVENT_LOOP_IDLE = gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Share of time, 0 to 1, in which the broker's thread of requests was idle since the previous scrape.",
)
HANDLER_IDLE = gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "Share of time, 0 to 1, in which the broker's thread of requests was idle since the previous scrape, under the "
    "name of Kafka's request handlers: one thread reads requests and handles them.",
)
WAITING = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests that wait for replicas, records or members, by kind of request.",
    "delayedOperation",
)
