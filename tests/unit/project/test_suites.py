"""The Makefile, the pre-commit hooks and CI run the same checks, and no test file is left out of
every target.
"""

import os
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
MAKEFILE = ROOT / "Makefile"


def make(*arguments: str) -> str:
    """The output of `make`, without the variables of a `make` that runs this test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def commands_of(target: str) -> str:
    """The commands of a target and its prerequisites, which `--dry-run` prints and does not run."""
    return make("--dry-run", target).replace("\\\n", " ")


def files_run_by(target: str) -> set[Path]:
    """The test files that a target passes to pytest."""
    found: set[Path] = set()
    for call in re.findall(r"/pytest ([^;>|&\n]*)", commands_of(target)):
        words = shlex.split(call)
        ignored = [ROOT / after for before, after in pairwise(words) if before == "--ignore"]
        for path in (ROOT / word for word in words if word.startswith("tests/")):
            if path not in ignored:
                files = set(path.rglob("test_*.py")) if path.is_dir() else {path}
                found |= {file for file in files if not any(file.is_relative_to(one) for one in ignored)}
    return found


def test_make_test_all_and_make_kube_run_every_test_file() -> None:
    all_files = set((ROOT / "tests").rglob("test_*.py"))
    tested, kube = files_run_by("test-all"), files_run_by("kube")
    assert tested | kube == all_files
    assert not tested & kube
    assert {file.relative_to(ROOT / "tests").parts[0] for file in kube} == {"kube", "e2e"}


def test_make_test_leaves_out_slow_tests_and_nothing_else() -> None:
    assert "slow" not in commands_of("test-all")
    assert commands_of("test").replace('-m "not slow"', "") == commands_of("test-all")


def test_each_suite_has_a_target_that_runs_its_part_of_make_test_all() -> None:
    tested = files_run_by("test-all")
    for suite in ("unit", "clients", "spark", "e2e"):
        assert files_run_by(suite) == {file for file in tested if file.is_relative_to(ROOT / "tests" / suite)}


def test_bare_pytest_runs_the_unit_tests(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("testpaths") == ["tests/unit"]


def test_pre_commit_runs_the_checks_of_make_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    checks = [line for line in commands_of("check").splitlines() if line.startswith(".venv/bin/") and "pip" not in line]
    assert [hook["entry"] for hook in hooks] == checks


def test_hosted_ci_calls_ci_run_which_calls_make_test_all() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    assert ".ci/run" in workflow["jobs"]["test"]["steps"][-1]["run"].split()
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test-all"


def test_make_help_describes_every_target() -> None:
    text = MAKEFILE.read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    targets = re.findall(r"^([a-z0-9-]+):(?! export)", text, re.MULTILINE)
    assert sorted(phony.split()) == sorted(targets)
    described = [line.split()[0] for line in make("--silent", "help").splitlines()]
    assert described == targets
