"""Files of resources: the line of each field, and problems, each reported in one line."""

from pathlib import Path

import pytest

from ottla_operator.local import documents
from ottla_operator.local.documents import InvalidFiles

GOOD = """\
apiVersion: ottla.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  replicas: 1
---
apiVersion: ottla.dev/v1alpha1
kind: Topic
metadata:
  name: flights
spec:
  clusterRef: {name: demo}
  partitions: 3
"""


def write(folder: Path, text: str, name: str = "all.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def read_problems(folder: Path, text: str) -> list[str]:
    """Problems of a file, without the folder's name."""
    with pytest.raises(InvalidFiles) as caught:
        documents.read_files([write(folder, text)])
    return [line.replace(f"{folder}/", "") for line in caught.value.lines]


def test_documents_know_the_lines_of_their_fields(tmp_path: Path) -> None:
    cluster, topic = documents.read_files([write(tmp_path, GOOD)])
    assert (cluster.kind, cluster.name, topic.kind, topic.name) == ("Cluster", "demo", "Topic", "flights")
    assert topic.locate(("spec", "partitions")) == f"{tmp_path}/all.yaml:13"
    assert topic.locate(("spec", "config", "retention.ms")) == f"{tmp_path}/all.yaml:11"


def test_a_problem_names_file_line_and_field(tmp_path: Path) -> None:
    assert read_problems(tmp_path, GOOD.replace("partitions", "partition")) == [
        "all.yaml:13: spec.partition: unknown field; did you mean 'partitions'?"
    ]


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    assert (
        len(
            read_problems(
                tmp_path, GOOD.replace("replicas: 1", "replicas: 0").replace("partitions: 3", "partitions: 0")
            )
        )
        == 2
    )


def test_invalid_yaml_is_reported(tmp_path: Path) -> None:
    (line,) = read_problems(tmp_path, "a: [1\nb: 2\n")
    assert line.startswith("all.yaml:2: not YAML: ")


def test_a_duplicated_key_is_reported(tmp_path: Path) -> None:
    assert read_problems(tmp_path, GOOD + "  partitions: 4\n") == [
        "all.yaml:14: not YAML: the key 'partitions' is duplicated"
    ]


def test_a_reference_to_a_missing_cluster_is_reported(tmp_path: Path) -> None:
    assert read_problems(tmp_path, GOOD.replace("{name: demo}\n  partitions", "{name: demmo}\n  partitions")) == [
        "all.yaml:12: spec.clusterRef.name: Cluster 'demmo' is not in these files; did you mean 'demo'?"
    ]


def test_a_topic_described_twice_is_reported(tmp_path: Path) -> None:
    again = GOOD.split("---")[1].replace("name: flights", "name: other").replace("partitions: 3", "topicName: flights")
    (line,) = read_problems(tmp_path, f"{GOOD}---{again}")
    assert line == "all.yaml:19: spec: topic 'flights' of cluster 'demo' is already described, in all.yaml:7"


def test_a_name_used_twice_is_reported(tmp_path: Path) -> None:
    (line, *_) = read_problems(tmp_path, f"{GOOD}---{GOOD.split('---')[1]}")
    assert line == "all.yaml:18: Topic 'flights' is already described, in all.yaml:7"


def test_folders_are_read_without_their_subfolders(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper", "nonsense: 1\n")
    write(tmp_path, '{"some": "data"}', "data.txt")
    assert len(documents.read_files([tmp_path])) == 2


def test_objects_of_other_groups_and_empty_documents_are_ignored(tmp_path: Path) -> None:
    foreign = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n"
    assert len(documents.read_files([write(tmp_path, f"---\n---\n{foreign}---\n{GOOD}")])) == 2


def test_items_of_a_list_are_read(tmp_path: Path) -> None:
    items = "".join("- " + part.strip().replace("\n", "\n  ") + "\n" for part in GOOD.split("---"))
    found = documents.read_files([write(tmp_path, f"apiVersion: v1\nkind: List\nitems:\n{items}")])
    assert [it.name for it in found] == ["demo", "flights"]
    assert found[1].locate(("spec", "partitions")) == f"{tmp_path}/all.yaml:15"


def test_dates_stay_text_and_merge_keys_are_resolved(tmp_path: Path) -> None:
    (found,) = documents.parse("base: &b {x: 1}\nwhen: 2013-01-01\nmore: {<<: *b, y: 2}\n", tmp_path)
    assert found.data == {"base": {"x": 1}, "when": "2013-01-01", "more": {"x": 1, "y": 2}}


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_path_without_files_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidFiles, match=r"no (such file or folder|\.yaml file in this folder)$"):
        documents.read_files([tmp_path / name])


def test_a_file_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InvalidFiles) as caught:
        documents.read_files([tmp_path])
    assert caught.value.lines == (f"{tmp_path}/all.yaml:2: not YAML: byte 0xff is not UTF-8",)


def test_an_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was renamed after the folder was listed is reported in the same way."""

    def reject(self: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(self))

    write(tmp_path, GOOD)
    monkeypatch.setattr(Path, "read_text", reject)
    with pytest.raises(InvalidFiles) as caught:
        documents.read_files([tmp_path])
    assert caught.value.lines == (f"{tmp_path}/all.yaml: cannot read: Permission denied",)


def test_an_emptied_file_removes_no_resources(tmp_path: Path) -> None:
    """A shell truncates a file before it starts the program that writes it."""
    cluster, topic = GOOD.split("---\n")
    write(tmp_path, cluster, "cluster.yaml")
    topics = write(tmp_path, "\n", "topics.yaml")
    with pytest.raises(InvalidFiles, match=r"topics\.yaml:1: the file is empty; delete it to remove its resources"):
        documents.read_files([tmp_path], had_resources={topics})
    assert len(documents.read_files([tmp_path])) == 1
    write(tmp_path, topic, "topics.yaml")
    assert len(documents.read_files([tmp_path], had_resources={topics})) == 2
