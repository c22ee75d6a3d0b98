"""The script libraries that the console carries."""

import base64
import hashlib
import io
import tarfile

import pytest

from ottla_broker.console.vendored_packages import DIGEST, FOLDER, VendoredPackage, extract_files, read_packages

MAX_BYTES = 250_000


def archive_of(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def integrity_of(archive: bytes) -> str:
    return f"{DIGEST}-{base64.b64encode(hashlib.new(DIGEST, archive).digest()).decode()}"


def test_every_file_is_here_with_its_licence_and_no_other() -> None:
    expected = {name for package in read_packages() for name in package.files.values()} | {"packages.json"}
    assert {path.name for path in FOLDER.iterdir()} == expected
    for package in read_packages():
        assert any(name.endswith("LICENSE.txt") for name in package.files.values()), package.name
        assert package.licence in ("0BSD", "MIT")
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MAX_BYTES


def test_files_are_taken_from_the_archive_of_the_digest_only() -> None:
    archive = archive_of(a=b"script", LICENSE=b"terms", b=b"other")
    package = VendoredPackage("some", "1.0", "MIT", integrity_of(archive), {"a": "a.js", "LICENSE": "a.txt"})
    assert extract_files(package, archive) == {"a.js": b"script", "a.txt": b"terms"}
    with pytest.raises(ValueError, match="has the digest sha512-"):
        extract_files(package, archive_of(a=b"changed", LICENSE=b"terms"))


def test_packages_are_named_as_npm_takes_them() -> None:
    assert VendoredPackage("@scope/name", "2.1", "MIT", "", {}).spec == "@scope/name@2.1"
