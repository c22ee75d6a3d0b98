"""The metrics of all workers as one page of Prometheus's text format. Pure.

Each sample gets the label `worker` with the worker's node.id. Samples of one metric stay together,
as the format requires.
"""

from collections.abc import Mapping

from ottla_broker.workers.worker_process import WorkerProcess


def combine_metrics(pages: Mapping[int, str]) -> str:
    """`pages`: node.id → the page of that worker."""
    headers: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for node_id, page in pages.items():
        family, is_first = "", False
        for line in page.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                if name != family:
                    family, is_first = name, name not in headers
                    headers.setdefault(family, [])
                    samples.setdefault(family, [])
                if is_first:
                    headers[family].append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(add_label(line, f'worker="{node_id}"'))
                headers.setdefault(family, [])
    return "".join(f"{line}\n" for family in headers for line in (*headers[family], *samples[family]))


def add_label(sample: str, label: str) -> str:
    """`name{a="b"} 1` or `name 1` with one more label in front."""
    brace, space = sample.find("{"), sample.find(" ")
    if brace < 0 or space < brace:
        return f"{sample[:space]}{{{label}}}{sample[space:]}"
    separator = "" if sample[brace + 1] == "}" else ","
    return f"{sample[: brace + 1]}{label}{separator}{sample[brace + 1 :]}"


def format_worker_states(workers: list[WorkerProcess]) -> str:
    """Metrics of the workers' processes themselves, also of those that do not respond."""
    up = "".join(f'ottla_worker_ready{{worker="{it.plan.node_id}"}} {int(it.ready.is_set())}\n' for it in workers)
    restarts = "".join(f'ottla_worker_restarts_total{{worker="{it.plan.node_id}"}} {it.restarts}\n' for it in workers)
    return (
        "# HELP ottla_worker_ready 1 while the worker's process serves clients.\n"
        f"# TYPE ottla_worker_ready gauge\n{up}"
        "# HELP ottla_worker_restarts_total Restarts of the worker's process since the command was started.\n"
        f"# TYPE ottla_worker_restarts_total counter\n{restarts}"
    )
