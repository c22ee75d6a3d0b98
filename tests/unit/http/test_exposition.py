"""The text format of Prometheus, and docs/metrics.md."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla_broker.http.prometheus_text import format_header, format_samples, metrics_page
from ottla_broker.metrics import METRICS, Metric, Sample

DOCS = Path(__file__).parents[3] / "docs"


def test_page_of_metrics_is_current() -> None:
    assert (DOCS / "metrics.md").read_text() == metrics_page(), (
        "run: python -m ottla_broker.http.prometheus_text > docs/metrics.md"
    )


def test_metrics_are_declared_once_and_names_of_counters_end_with_total() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(metric.name.endswith("_total") for metric in METRICS if metric.kind == "counter")


# The parser is that of Prometheus's client library.
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
            st.text(st.sampled_from('a"\\\n{},= é'), max_size=8),
            st.integers(-(2**63), 2**63) | st.floats(allow_nan=False),
        ),
        max_size=5,
        unique_by=lambda sample: sample[:2],
    )
)
def test_any_sample_is_parsed_by_prometheus(samples: list[tuple[str, str, float]]) -> None:
    metric = Metric("some_gauge", "gauge", "A doc.", ("first", "second"))
    text = format_header(metric) + format_samples(metric, [Sample((a, b), value) for a, b, value in samples])
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.documentation, family.type) == ("some_gauge", "A doc.", "gauge")
    read = [(one.labels["first"], one.labels["second"], float(one.value)) for one in family.samples]
    assert read == [(a, b, float(value)) for a, b, value in samples]
