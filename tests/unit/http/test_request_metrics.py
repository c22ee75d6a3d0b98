"""Histograms and summaries of requests, as Prometheus's client library reads them."""

import time
from math import inf

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ottla_broker.duration_histogram import DurationHistogram
from ottla_broker.http.prometheus_text import OPEN_METRICS_END, format_header, format_samples
from ottla_broker.http.request_metrics import LatencyMetrics
from ottla_broker.metrics import BYTES_IN, Sample
from ottla_broker.request_times import FOLLOWER_FETCH, RequestTimes
from ottla_broker.wire.api_keys import ApiKey

NAME = "ottla_request_duration_seconds"


def expose(*, open_metrics: bool) -> str:
    """The page of metrics after 101 requests and a flush."""
    times = RequestTimes(time.perf_counter)
    times.observe(ApiKey.PRODUCE, 0.0, 0.003, times=99)
    times.observe(ApiKey.PRODUCE, 0.0, 1.5)
    times.observe(FOLLOWER_FETCH, 0.5, 0.5)
    flushes = DurationHistogram()
    flushes.observe(0.02)
    families = [*LatencyMetrics().collect(times, flushes, 0.0), (BYTES_IN, [Sample(("t",), 7)])]
    text = "".join(
        format_header(one, open_metrics=open_metrics) + format_samples(one, samples) for one, samples in families
    )
    return text + (OPEN_METRICS_END if open_metrics else "")


@pytest.mark.parametrize("open_metrics", [False, True])
def test_exposition_is_read_as_histograms_and_summaries(open_metrics: bool) -> None:
    parse = parse_open_metrics if open_metrics else parse_text
    families = {family.name: family for family in parse(expose(open_metrics=open_metrics))}
    assert families[NAME].type == "histogram"
    assert families["kafka_network_requestmetrics_totaltimems"].type == "summary"
    assert families["kafka_server_brokertopicmetrics_bytesin"].type == "counter"
    buckets = {
        float(one.labels["le"]): one.value
        for one in families[NAME].samples
        if (one.name, one.labels.get("request"), one.labels.get("phase")) == (f"{NAME}_bucket", "Produce", "total")
    }
    assert (buckets[2**-9], buckets[2**-8], buckets[1.0], buckets[2.0], buckets[inf]) == (0, 99, 99, 100, 100)
    quantiles = {
        one.labels["quantile"]: one.value
        for one in families["kafka_network_requestmetrics_totaltimems"].samples
        if one.labels["request"] == "Produce" and "quantile" in one.labels
    }
    assert 1.9 < quantiles["0.50"] < 4
    assert 1000 < quantiles["0.999"] <= 2048
    assert {one.labels["request"] for one in families[NAME].samples} == {"Produce", "FetchFollower"}
    (flushes,) = [one for one in families["ottla_log_flush_duration_seconds"].samples if one.name.endswith("_count")]
    assert flushes.value == 1
