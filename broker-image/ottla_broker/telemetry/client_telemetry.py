"""Clients' own metrics (KIP-714) at one broker: checks pushes and stores the metrics."""

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.runtime import uuid_text
from ottla_broker.telemetry.client_instances import ClientInstances, ClientParameters, Push
from ottla_broker.telemetry.pushed_metrics import PushedMetrics
from ottla_broker.wire.batch import Compression
from ottla_broker.wire.compression import decompress
from ottla_broker.wire.errors import ErrorCode, KafkaError


class ClientTelemetry:
    """The instances and their metrics. `max_bytes`: largest size of the metrics in a push."""

    def __init__(self, image: MetadataImage, max_bytes: int) -> None:
        self.instances = ClientInstances(image, max_bytes)
        self.metrics = PushedMetrics()

    def push(self, push: Push, client: ClientParameters, data: bytes, now_ms: int) -> None:
        """Stores the pushed metrics. Raises what `ClientInstances.check_push` raises;
        INVALID_RECORD for metrics that cannot be decoded."""
        instance = self.instances.check_push(push, client, now_ms)
        if not data:
            return
        from ottla_broker.telemetry.otlp import read_points  # it takes megabytes, which most brokers never need

        try:
            points = read_points(decompress(Compression(push.compression), data, self.instances.max_bytes))
        except KafkaError as error:
            instance.last_error = ErrorCode.invalid_record
            raise KafkaError(ErrorCode.invalid_record, error.message) from error
        labels = {
            "client_id": client.get("client_id") or "",
            "client_instance_id": uuid_text(push.instance_id),
            "client_software_name": client.get("client_software_name") or "",
        }
        interval_ms = instance.subscription.interval_ms
        self.metrics.add(push.instance_id, labels, points, now_ms=now_ms, interval_ms=interval_ms)
