"""Pipelines of Topics with a lake, as `ottla up` runs them: each has a file of its own, which its
driver reads.
"""

import json
from collections.abc import Sequence

from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home, replace_file
from ottla_operator.plan.topic_lake import lake_pipeline, with_absolute_paths
from ottla_operator.resources.topic import Topic


def lake_documents(documents: Sequence[Document], home: Home) -> list[Document]:
    """The Pipelines of the Topics with a lake, except those that the files describe themselves."""
    described = {it.name for it in documents if it.kind == "Pipeline"}
    found: list[Document] = []
    for document in documents:
        pipeline = lake_pipeline(Topic.parse(document.data)) if document.kind == "Topic" else None
        if pipeline is None or pipeline["metadata"]["name"] in described:
            continue
        absolute = with_absolute_paths(pipeline, document.file.resolve().parent)
        file = home.lake_pipeline(pipeline["spec"]["clusterRef"]["name"], pipeline["metadata"]["name"])
        found.append(Document(file, absolute, {(): 1}))
    return found


def write_lake_documents(documents: Sequence[Document], home: Home) -> list[Document]:
    """Writes the files of these Pipelines, and returns them."""
    found = lake_documents(documents, home)
    for document in found:
        replace_file(document.file, json.dumps(document.data, indent=2))
    return found
