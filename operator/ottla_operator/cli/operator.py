"""`ottla operator`: keeps Clusters, Topics and Pipelines of a Kubernetes cluster as they are wished, until it is stopped."""

import asyncio
import logging
import os
import signal
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from ottla_operator.cli.exit_codes import CommandError, ExitCode

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def add_to(app: typer.Typer) -> None:
    app.command("operator", help="Keep the Clusters, Topics and Pipelines of a Kubernetes cluster as they are wished.")(
        operator
    )


def operator(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            envvar="OTTLA_NAMESPACES",
            help="A namespace to watch; may be given several times. Without it, all.",
        ),
    ] = None,
    image: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_BROKER_IMAGE", help="The brokers' image, without a tag: a Cluster's version is its tag."
        ),
    ] = "ottla-broker",
    version: Annotated[
        str | None,
        typer.Option(
            envvar="OTTLA_BROKER_VERSION",
            help="The version of Clusters that name none; the operator's own when not given.",
        ),
    ] = None,
    spark_image: Annotated[
        str, typer.Option(envvar="OTTLA_SPARK_IMAGE", help="The pipelines' image, of Pipelines that name none.")
    ] = "ottla-spark",
    pull_policy: Annotated[
        str, typer.Option(envvar="OTTLA_SPARK_PULL_POLICY", help="When it is pulled: Always, IfNotPresent or Never.")
    ] = "IfNotPresent",
    home: Annotated[
        str | None,
        typer.Option(
            envvar="POD_NAMESPACE",
            help="The namespace of the Lease by which several operators agree who acts; the pod's own when not given.",
        ),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            envvar="OTTLA_OPERATOR_LEASE",
            help="The name of that Lease. Operators that keep the same namespaces share one; others in the same home namespace need another.",
        ),
    ] = "ottla-operator",
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /livez, /readyz and /metrics are served; empty for nowhere.")
    ] = ":8080",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    from ottla_operator.kube.operator import LoginError, Operator, OperatorOptions
    from ottla_operator.plan.objects.pods import BrokerImages
    from ottla_operator.plan.pipeline.pods import PipelineImage

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    options = OperatorOptions(
        namespaces=[part for it in namespace or [] for part in it.split(",") if part],
        lease_namespace=home or _own_namespace(),
        lease_name=lease,
        images=BrokerImages(image, version or metadata.version("ottla")),
        pipeline_image=PipelineImage(spark_image, pull_policy),
        http_listener=_address(http),
    )

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Operator(options).run(stop)

    try:
        asyncio.run(work())
    except LoginError as error:
        raise CommandError(ExitCode.unreachable, str(error)) from error


def _own_namespace() -> str:
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    except OSError:
        return os.environ.get("POD_NAMESPACE") or "default"


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise typer.BadParameter(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)
