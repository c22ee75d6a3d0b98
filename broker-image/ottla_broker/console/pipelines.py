"""The pages of pipelines: the list, and one pipeline with its state, lag and graph.

They show what the operator, or `ottla up`, has reported to the active controller.
"""

from urllib.parse import urlsplit

from aiohttp import web

from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.pipeline_graph import HEIGHT, WIDTH, lay_out
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.topics import may_describe_topic
from ottla_broker.security.authorizer import CLUSTER, Operation
from ottla_broker.wire.client import raise_for_error
from ottla_broker.wire.pipeline_report import PIPELINE_RESOURCE, PipelineReport, StoredReport, read_reports

SILENT_S = 60.0
"""Reports are repeated every 10 s; above this age the page warns that nobody reports."""
BAD_STATES = ("Failing", "Failed")


class PipelinePages:
    """Users with DESCRIBE_CONFIGS on the cluster see every pipeline; others see a pipeline if they
    have DESCRIBE on all its topics.
    """

    def __init__(self, requests: ClusterRequests) -> None:
        self._requests = requests

    async def show_list(self, page: PageRequest) -> web.Response:
        found = await self._find(page)
        template = "pipeline_rows.html" if page.wants_fragment else "pipelines.html"
        return page.render(template, pipelines=found, silent_s=SILENT_S, bad_states=BAD_STATES)

    async def show_pipeline(self, page: PageRequest) -> web.Response:
        name = page.http.query.get("name", "")
        stored = (await self._find(page)).get(name)
        if stored is None:
            reason = f"Nobody has reported a pipeline {name!r} that {page.user.principal} may describe."
            raise PageError(404, reason)
        return page.render(
            "pipeline_parts.html" if page.wants_fragment else "pipeline.html",
            name=name,
            report=stored.report,
            age_s=stored.age_seconds,
            silent_s=SILENT_S,
            bad_states=BAD_STATES,
            spark_ui=stored.report.spark_ui if is_web_address(stored.report.spark_ui) else "",
            graph=lay_out(stored.report.views),
            box_width=WIDTH,
            box_height=HEIGHT,
        )

    async def _find(self, page: PageRequest) -> dict[str, StoredReport]:
        """The pipelines that the user may see, by name. Raises KafkaError, OSError."""
        result = await self._requests.describe_at_controller(PIPELINE_RESOURCE)
        raise_for_error(result.error_code, result.error_message or "the controller describes no pipelines")
        sees_all = page.user.may(Operation.describe_configs, CLUSTER)
        found = read_reports(result.configs).items()
        return {name: stored for name, stored in found if sees_all or may_describe_topics(page, stored.report)}


def may_describe_topics(page: PageRequest, report: PipelineReport) -> bool:
    """False for a pipeline of which no topic is known."""
    return bool(report.topics) and all(may_describe_topic(page, topic) for topic in report.topics)


def is_web_address(url: str) -> bool:
    """True for an http or https URL. Pages link to no other: users who may alter configs of the
    cluster write reports.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
