"""One page of metrics from those of several workers."""

from prometheus_client.parser import text_string_to_metric_families

from ottla_broker.workers.combined_metrics import add_label, combine_metrics

PAGE = """# HELP a_total Things.
# TYPE a_total counter
a_total{topic="x {y}"} %d
a_total 2
# HELP h_seconds Times.
# TYPE h_seconds histogram
h_seconds_bucket{le="1"} 1
h_seconds_bucket{le="+Inf"} 2
h_seconds_sum 3
h_seconds_count 2
"""


def test_samples_of_a_metric_stay_together_and_name_their_worker() -> None:
    families = list(text_string_to_metric_families(combine_metrics({1: PAGE % 5, 2: PAGE % 6})))
    assert [(family.name, family.type) for family in families] == [("a", "counter"), ("h_seconds", "histogram")]
    counts = {(it.labels["worker"], it.labels.get("topic")): it.value for it in families[0].samples}
    assert counts == {("1", "x {y}"): 5, ("1", None): 2, ("2", "x {y}"): 6, ("2", None): 2}
    assert [(it.name, it.labels["worker"]) for it in families[1].samples if it.name.endswith("_sum")] == [
        ("h_seconds_sum", "1"),
        ("h_seconds_sum", "2"),
    ]


def test_a_metric_of_one_worker_alone_keeps_its_header() -> None:
    only = "# HELP b Other.\n# TYPE b gauge\nb 1\n"
    assert combine_metrics({1: "", 2: only}) == '# HELP b Other.\n# TYPE b gauge\nb{worker="2"} 1\n'


def test_a_label_is_added_to_any_sample() -> None:
    assert add_label("a 1", 'w="1"') == 'a{w="1"} 1'
    assert add_label("a{} 1", 'w="1"') == 'a{w="1"} 1'
    assert add_label('a{b="{ }"} 1', 'w="1"') == 'a{w="1",b="{ }"} 1'
