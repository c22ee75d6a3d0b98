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
BUILD_TOOLS = ("gcc", "cc", "make", "pip", "pip3", "curl", "wget", "git")

pytestmark = pytest.mark.timeout(1200)  # the first build downloads Debian, Python packages and Spark


@pytest.fixture(scope="module", params=["broker", "broker-compiled", "operator", "spark"])
def built(request: pytest.FixtureRequest) -> tuple[str, BuiltImage]:
    """(name, built image)."""
    if missing := build.missing_requirement():
        skip_or_fail_in_ci(missing)
    return request.param, build.build_image(request.param)


@pytest.fixture
def root(built: tuple[str, BuiltImage], tmp_path: Path) -> Iterator[Path]:
    """The image's file system, read-only except for /tmp."""
    folder = tmp_path / "root"
    folder.mkdir()
    layers = ":".join(str(layer) for layer in reversed(built[1].layers))
    subprocess.run(["mount", "-t", "overlay", "-o", f"ro,lowerdir={layers}", "overlay", folder], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder / "tmp"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", folder / "proc"], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder / "proc", folder / "tmp", folder], check=True)


def run(root: Path, built: BuiltImage, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the image's entry point as the image's user."""
    return run_program(root, built, *built.stage.entrypoint, *arguments)


def run_program(root: Path, built: BuiltImage, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["chroot", f"--userspec={built.stage.user}", str(root), *command],
        env=built.stage.environment | {"HOME": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_user_of_an_image_is_not_root(built: tuple[str, BuiltImage]) -> None:
    assert built[1].stage.user == "10001:10001"


def test_an_image_starts_on_a_read_only_file_system(built: tuple[str, BuiltImage], root: Path) -> None:
    name, image = built
    if name == "spark":
        done = run(root, image, "executor")
        assert done.returncode == 2
        assert done.stderr == "SPARK_EXECUTOR_MEMORY is not set: Spark sets it in the pods that it creates\n"
        (root / "tmp/pipeline.yaml").write_bytes((build.ROOT / "examples/flights/pipeline.yaml").read_bytes())
        done = run(root, image, "validate", "--shape", "--pipeline", "/tmp/pipeline.yaml")
        assert done.stderr == "pipeline hourly-delays: valid\n"
    else:
        done = run(root, image, "--help")
        assert done.returncode == 0, done.stderr
        assert "Usage: ottla" in done.stdout or "usage: ottla broker" in done.stdout


def test_an_image_has_byte_code(built: tuple[str, BuiltImage], root: Path) -> None:
    """On a read-only file system, each start would otherwise compile all imported modules again."""
    packages = {"spark": ["ottla_spark"], "operator": ["ottla_broker", "ottla_operator"]}
    for package in packages.get(built[0], ["ottla_broker"]):
        sources = list((root / "opt/own" / package).glob("**/*.py"))
        assert sources
        assert not [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]


@pytest.mark.parametrize(("built", "build"), [("broker", "pure"), ("broker-compiled", "compiled")], indirect=["built"])
def test_hot_paths_are_compiled_in_the_default_broker_image_and_pure_in_broker_source(
    built: tuple[str, BuiltImage], build: str, root: Path
) -> None:
    program = "from ottla_broker.hot_paths import hot_paths_build; print(hot_paths_build())"
    assert run_program(root, built[1], "python", "-c", program).stdout == f"{build}\n"


def test_an_image_has_no_build_tools(root: Path) -> None:
    found = [
        name
        for name in BUILD_TOOLS
        for folder in ("bin", "usr/bin", "opt/ottla/bin")
        if (root / folder / name).exists()
    ]
    assert found == []


@pytest.mark.parametrize("name", ["broker", "broker-compiled"])
def test_the_broker_image_adds_less_than_150_mb_to_python(name: str) -> None:
    if missing := build.missing_requirement():
        skip_or_fail_in_ci(missing)
    assert build.own_size(name) < 150 * MB


def test_an_unsupported_instruction_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM debian:bookworm-slim\nHEALTHCHECK CMD true\n")
    with pytest.raises(UnsupportedDockerfile, match="HEALTHCHECK"):
        parse_dockerfile(file)


def test_the_instructions_of_a_dockerfile_are_parsed(tmp_path: Path) -> None:
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
