"""The figures of `bench.workers`."""

import pytest

from bench.programs import ManyClientsResult
from bench.workers import WorkersResult, print_line


def result(per_s: float, broker_cpu_us: float, client_cpu_s: float) -> ManyClientsResult:
    return ManyClientsResult(2.0, per_s, 1.0, 2.0, broker_cpu_us, client_cpu_s)


def test_a_line_has_the_ratio_of_medians_and_processor_time_per_request(capsys: pytest.CaptureFixture[str]) -> None:
    one = [result(100.0, 20.0, 0.001), result(50.0, 30.0, 0.002), result(90.0, 25.0, 0.0009)]
    two = [result(80.0, 26.0, 0.0016)] * 2
    line = WorkersResult(50, [100.0, 50.0, 90.0], [160.0], {1: one, 2: two})
    assert line.ratio == pytest.approx(160 / 90)
    assert (line.cpu_us(1), line.cpu_us(2)) == (25.0, 26.0)
    assert line.client_cpu_us(1) == pytest.approx(5.0)
    assert line.client_cpu_us(2) == pytest.approx(10.0)
    print_line(line)
    assert "ratio 1.78, goal 1.8: missed" in capsys.readouterr().out
