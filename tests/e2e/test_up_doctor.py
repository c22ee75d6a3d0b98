"""`ottla doctor` on the files of a cluster that `ottla up` runs."""

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import resource


def test_ports_of_brokers_that_run_are_no_problem(up: UpProcess) -> None:
    up.write_resources(resource("Cluster", "demo", replicas=1, listeners=[{"name": "plain", "port": up.port}]))
    up.start()
    up.wait_for_line("the broker is ready")
    examined = up.run_ottla("doctor", str(up.folder / "resources"), "--home", str(up.folder / ".ottla"))
    assert f"ok       port {up.port}" in examined.stdout, examined.stdout
    assert "in use by demo-1, which runs" in examined.stdout
