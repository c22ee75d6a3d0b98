"""Connections, their limits, certificates and quotas, the memory that clients hold, the audit log,
and the broker's build.
"""

from ottla_broker.metrics.declaration import counter, gauge

CERTIFICATE_EXPIRY = gauge(
    "ottla_listener_certificate_expiry_seconds",
    "End of the validity of a listener's own certificate, in seconds since the epoch.",
    "listener",
)
BUILD_INFO = gauge(
    "ottla_build_info",
    "Always 1. `version`: of Ottla; `hot_paths`: compiled or pure; `python`: version of the interpreter.",
    "version",
    "hot_paths",
    "python",
)
CONNECTIONS = gauge("kafka_server_socketservermetrics_connection_count", "Open connections, by listener.", "listener")
STRIMZI_CONNECTIONS = gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "Open connections, by listener, under the name that Strimzi's rules give it.",
    "listener",
)
CONNECTIONS_REFUSED = counter(
    "ottla_connections_refused_total", "Connections refused because of a limit on connections."
)
AUDIT_DROPPED = counter(
    "ottla_audit_dropped_lines_total",
    "Lines of the audit log that were not written: there were too many at a time, or a write failed.",
)
_QUOTA_DOC = "by client quota and entity; above a thousand pairs of these the rest is (others)."
THROTTLED = counter(
    "ottla_client_quota_throttled_total",
    f"Requests, or connections of an IP address, that were throttled, {_QUOTA_DOC}",
    "quota",
    "entity",
    "client_id",
)
THROTTLE_SECONDS = counter(
    "ottla_client_quota_throttle_seconds_total",
    f"Time in seconds for which requests or connections were throttled, {_QUOTA_DOC}",
    "quota",
    "entity",
    "client_id",
)
REQUEST_MEMORY = gauge(
    "ottla_request_memory_bytes", "Memory that large requests hold, bounded by queued.max.request.bytes."
)
RESPONSE_MEMORY = gauge("ottla_response_memory_bytes", "Memory of responses that slow clients have not read yet.")
