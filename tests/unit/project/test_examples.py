"""What `ottla up examples/NAME` reads is valid and complete, and has a page with a plot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla_operator.local.documents import read_files
from ottla_operator.resources.topic import Topic
from ottla_spark.definition import load_pipeline

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(it.parent for it in ROOT.glob("examples/*/topics.yaml"))
PAGES = [(ROOT / "docs" / name).read_text() for name in ("examples.md", "pipelines.md")]


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda it: it.name)
def test_resources_of_an_example_are_complete(folder: Path) -> None:
    documents = read_files([folder])
    clusters = {it.name for it in documents if it.kind == "Cluster"}
    topics = {Topic.parse(it.data).topic_name for it in documents if it.kind == "Topic"}
    for document in documents:
        reference = document.data["spec"].get("clusterRef")
        assert reference is None or reference["name"] in clusters
    if any(it.kind == "Mirror" for it in documents):
        return  # topics of another cluster are copied
    for file in folder.glob("pipeline.yaml"):
        spec = load_pipeline(file).spec
        named = {it.topic for it in spec.sources.values()} | {it.topic for it in spec.sinks if it.topic}
        assert named <= topics


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda it: it.name)
def test_an_example_has_a_page_with_its_command_and_a_plot(folder: Path) -> None:
    assert any(f"ottla up examples/{folder.name}" in it for it in PAGES)
    plots = {name for page in PAGES for name in re.findall(r"\]\(images/([\w-]+)\.svg\)", page)}
    assert folder.name in plots and (ROOT / "docs" / "images" / f"{folder.name}.svg").exists()
    assert (folder / "plot.py").exists()
