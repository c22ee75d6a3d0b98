"""The console of a Cluster on a real kubelet, in a real browser: a login by a real OpenID Connect
server, and a rolling restart of the pods on the overview.

The browser reaches the console as docs/console.md says, by `kubectl port-forward`.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import WIDE, run_chromium, take_screenshot
from tests.daemons import Daemon
from tests.kube.api_client import Json
from tests.kube.certificates import create_certificate_authority
from tests.kube.cluster import Kubernetes
from tests.kube.installed_operator import InstalledOperator
from tests.kube.managed_cluster import ManagedCluster
from tests.kube.namespace_client import NamespaceClient
from tests.kube.programs import find_program
from tests.kube.resource_history import ResourceHistory
from tests.oidc_server import CONSOLE, OidcServer, new_key, run_oidc_server
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
NAME, NAMESPACE = "viewed", "viewed"
PORT = 8080
CONSOLE_URL = f"http://localhost:{PORT}"
CLIENT_SECRET, AUTHORITY_SECRET = "console-oidc", "login-ca"
WITHIN_S = 60.0
ROLLS_WITHIN_MS = 180_000


@pytest.fixture(scope="module")
def browser(kube: Kubernetes) -> Iterator[Browser]:
    """A browser on the node network, like everything that starts after `kube`."""
    with run_chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def oidc(kube: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcServer]:
    """A server at an address that pods reach, with a certificate of an authority of its own."""
    folder = tmp_path_factory.mktemp("oidc")
    authority = create_certificate_authority(folder / "authority", [kube.plane.address], ["localhost"])
    with run_oidc_server(
        folder, [new_key("first")], f"{CONSOLE_URL}/login/oidc", kube.plane.address, authority
    ) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(installed_operator: InstalledOperator, oidc: OidcServer) -> Iterator[ManagedCluster]:
    """Three brokers with the topics `orders`, which alice may describe, and `payments`. Alice may
    describe the cluster, too.
    """
    api = installed_operator.kube.plane.admin
    resources = NamespaceClient(api, NAMESPACE)
    resources.create_namespace()
    with ResourceHistory(api, NAMESPACE) as history:
        made = ManagedCluster(installed_operator, resources, history, NAME)
        made.create(spec_of(oidc), while_starting=lambda: check_that_secrets_are_required(made, oidc))
        for topic in ("orders", "payments"):
            resources.create("Topic", topic, {"clusterRef": {"name": NAME}, "partitions": 2, "replicas": 3})
        rules = [{"allow": ["Describe"], "cluster": True}, {"allow": ["Describe"], "topic": "orders"}]
        user = {"clusterRef": {"name": NAME}, "authentication": {"type": "External"}, "acls": rules}
        resources.create("User", "alice", user)
        for kind, name in (("Topic", "orders"), ("Topic", "payments"), ("User", "alice")):
            resources.wait_for_status(kind, name)
        yield made
        assert history.find_violations() == []
    api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def spec_of(oidc: OidcServer) -> Json:
    return {
        "listeners": [{"name": "clients", "port": 9092, "authentication": "SCRAM"}],
        "authorization": {"type": "ACL"},
        "console": {
            "oidc": {
                "issuer": oidc.url,
                "clientId": CONSOLE[0],
                "clientSecretFrom": {"name": CLIENT_SECRET, "key": "secret"},
                "caSecretRef": {"name": AUTHORITY_SECRET},
            }
        },
    }


def check_that_secrets_are_required(cluster: ManagedCluster, oidc: OidcServer) -> None:
    """Asserts that the Cluster is Stalled without pods until both Secrets exist. Creates them."""

    def is_stalled_by(problem: str) -> bool:
        condition = cluster.resources.condition("Cluster", NAME, "Stalled")
        return condition.get("status") == "True" and problem in condition["message"]

    assert oidc.authority is not None
    for field, name, key, content in (
        ("clientSecretFrom", CLIENT_SECRET, "secret", CONSOLE[1]),
        ("caSecretRef", AUTHORITY_SECRET, "ca.crt", oidc.authority.certificate.read_text()),
    ):
        problem = f"spec.console.oidc.{field}: Secret {name} does not exist"
        eventually(partial(is_stalled_by, problem), within_s=WITHIN_S, message=cluster.describe)
        assert not cluster.pods()
        secret = {"metadata": {"name": name}, "data": {key: base64.b64encode(content.encode()).decode()}}
        cluster.resources.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)


@contextmanager
def forward_port(cluster: ManagedCluster, pod: str, folder: Path) -> Iterator[None]:
    """During the block, forwards PORT of this machine to that of a pod."""
    kubeconfig = cluster.operator.kube.plane.kubeconfig()
    command: list[str | Path] = [
        find_program("control-plane"),
        "kubectl",
        "--kubeconfig",
        kubeconfig,
        "--namespace",
        NAMESPACE,
    ]
    forwarding = Daemon([*command, "port-forward", f"pod/{pod}", str(PORT)], folder / "port-forward.log")
    forwarding.start()
    try:
        eventually(lambda: "Forwarding from 127.0.0.1" in forwarding.log_tail(), message=forwarding.log_tail)
        yield
    finally:
        forwarding.stop()


@contextmanager
def log_in(browser: Browser, name: str) -> Iterator[Page]:
    """A tab after a login at the provider, whose certificate the browser does not know."""
    context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]}, ignore_https_errors=True)
    try:
        tab = context.new_page()
        tab.goto(CONSOLE_URL)
        tab.get_by_role("link", name="Log in with").click()
        tab.locator("input[name=login]").fill(name)
        tab.locator("input[name=password]").fill("any")
        tab.locator("button[type=submit]").click()
        expect(tab.locator("header")).to_contain_text(f"User:{name}")
        yield tab
    finally:
        context.close()


def test_user_of_the_provider_sees_what_the_users_rules_allow(
    browser: Browser, cluster: ManagedCluster, tmp_path: Path
) -> None:
    with forward_port(cluster, f"{NAME}-1", tmp_path):
        with log_in(browser, "alice") as tab:
            tab.get_by_role("navigation").get_by_role("link", name="Topics").click()
            names = tab.get_by_role("region", name="Topics").locator("tbody td:first-child")
            expect(names).to_have_text(["orders"])
        with log_in(browser, "bob") as tab:
            tab.get_by_role("navigation").get_by_role("link", name="Topics").click()
            expect(tab.get_by_role("main")).to_contain_text("0 topics")


def test_rolling_restart_of_the_pods_is_shown(browser: Browser, cluster: ManagedCluster, tmp_path: Path) -> None:
    """The tab is open at the controller, which restarts last."""
    before = cluster.uids()
    with forward_port(cluster, f"{NAME}-{cluster.status['controller']}", tmp_path), log_in(browser, "alice") as tab:
        expect(tab.get_by_role("main").get_by_role("status")).to_contain_text("All is well", timeout=ROLLS_WITHIN_MS)
        cluster.patch_spec({"config": {"num.partitions": 3}})
        roll = tab.get_by_role("region", name="Rolling restart")
        expect(roll).to_contain_text("still to be restarted", timeout=ROLLS_WITHIN_MS)
        rows = tab.get_by_role("region", name="Restarts").locator("tbody tr")
        expect(rows.first).to_be_visible(timeout=ROLLS_WITHIN_MS)
        take_screenshot(tab, "roll-of-pods")
    cluster.wait_for_rolling_restart(before)
    cluster.wait_for_status()
