"""The project's images: small, without build tools, and able to start without root on a read-only
file system.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jars import skip_or_fail_in_ci
from tests.kube.images import build
from tests.kube.images.dockerfile import UnsupportedDockerfile, parse_dockerfile
from tests.kube.images.layers import BuiltImage

MB = 1_000_000
NOT_IN_IMAGES = ("gcc", "cc", "make", "pip", "pip3", "curl", "wget", "git")

pytestmark = pytest.mark.timeout(1200)  # a first build fetches Debian, Python's packages and Spark


@pytest.fixture(scope="module", params=["broker", "operator", "spark"])
def built(request: pytest.FixtureRequest) -> tuple[str, BuiltImage]:
    if lacking := build.missing_requirement():
        skip_or_fail_in_ci(lacking)
    return request.param, build.build_image(request.param)


@pytest.fixture
def root(built: tuple[str, BuiltImage], tmp_path: Path) -> Iterator[Path]:
    """The image's file system, read-only except for /tmp."""
    place = tmp_path / "root"
    place.mkdir()
    layers = ":".join(str(layer) for layer in reversed(built[1].layers))
    subprocess.run(["mount", "-t", "overlay", "-o", f"ro,lowerdir={layers}", "overlay", place], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place / "tmp"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", place / "proc"], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place / "proc", place / "tmp", place], check=True)


def run(root: Path, built: BuiltImage, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the image's entry point as the image's user."""
    become = ["chroot", f"--userspec={built.stage.user}", str(root)]
    return subprocess.run(
        [*become, *built.stage.entrypoint, *arguments],
        env=built.stage.environment | {"HOME": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_nobody_is_root_in_it(built: tuple[str, BuiltImage]) -> None:
    assert built[1].stage.user == "10001:10001"


def test_it_starts_on_a_file_system_that_nobody_may_write(built: tuple[str, BuiltImage], root: Path) -> None:
    name, image = built
    if name == "spark":
        said = run(root, image, "executor")
        assert said.returncode == 2
        assert said.stderr == "SPARK_EXECUTOR_MEMORY is not set: Spark sets it in the pods that it creates\n"
        (root / "tmp/pipeline.yaml").write_bytes((build.ROOT / "examples/flights/pipeline.yaml").read_bytes())
        said = run(root, image, "validate", "--shape", "--pipeline", "/tmp/pipeline.yaml")
        assert said.stderr == "pipeline hourly-delays: valid\n"
    else:
        said = run(root, image, "--help")
        assert said.returncode == 0, said.stderr
        assert "Usage: ottla" in said.stdout or "usage: ottla broker" in said.stdout


def test_byte_code_is_there_already(built: tuple[str, BuiltImage], root: Path) -> None:
    """On a read-only file system, each start would otherwise compile all imported modules again."""
    packages = root / "opt/own"
    sources = (
        list(packages.glob("ottla_broker/**/*.py")) if built[0] != "spark" else list(packages.glob("ottla_spark/*.py"))
    )
    assert sources
    assert not [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]


def test_there_are_no_build_tools_in_it(root: Path) -> None:
    found = [
        name
        for name in NOT_IN_IMAGES
        for place in ("bin", "usr/bin", "opt/ottla/bin")
        if (root / place / name).exists()
    ]
    assert found == []


def test_the_broker_adds_little_to_its_python() -> None:
    if lacking := build.missing_requirement():
        skip_or_fail_in_ci(lacking)
    assert build.own_size("broker") < 150 * MB


def test_an_instruction_that_this_reader_does_not_know_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM debian:bookworm-slim\nHEALTHCHECK CMD true\n")
    with pytest.raises(UnsupportedDockerfile, match="HEALTHCHECK"):
        parse_dockerfile(file)


def test_what_a_dockerfile_says_is_read(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(
        "# why\nFROM debian:bookworm-slim AS one\nENV PATH=/x:$PATH A='b c'\nWORKDIR /src\n"
        'RUN first \\\n# between\n && second\nUSER 5:5\nFROM one\nCOPY --from=one /a /b\nENTRYPOINT ["x", "y"]\n'
    )
    stages = parse_dockerfile(file)
    assert list(stages) == ["one", "1"]
    assert stages["one"].steps[0].text.split() == ["first", "&&", "second"]
    last = stages["1"]
    assert (last.user, last.workdir, last.entrypoint) == ("5:5", "/src", ["x", "y"])
    assert last.environment["PATH"].startswith("/x:/usr/local/sbin:")
    assert last.environment["A"] == "b c"
