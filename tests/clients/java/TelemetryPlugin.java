import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** With it Apache Kafka serves GetTelemetrySubscriptions and PushTelemetry. It drops the metrics. See ../telemetry_cases.py. */
public class TelemetryPlugin implements MetricsReporter, ClientTelemetry {
    @Override public void configure(Map<String, ?> configs) {}
    @Override public void init(List<KafkaMetric> metrics) {}
    @Override public void metricChange(KafkaMetric metric) {}
    @Override public void metricRemoval(KafkaMetric metric) {}
    @Override public void close() {}
    @Override public ClientTelemetryReceiver clientReceiver() { return (context, payload) -> {}; }
}
