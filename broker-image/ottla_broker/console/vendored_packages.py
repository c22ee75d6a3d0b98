"""`python -m ottla_broker.console.vendored_packages`: downloads the script libraries of the console
with npm into `static/vendor`, whose files are part of the wheel.

`static/vendor/packages.json` names each package with its version, its licence, the registry's
digest of its archive, and the files that are taken from it. To use another version, change version
and integrity there (`npm view NAME@VERSION dist.integrity`) and run this. npm's own configuration
says which registry it asks. A broker serves the files and downloads nothing.
"""

import base64
import hashlib
import io
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

FOLDER: Final = Path(__file__).parent / "static" / "vendor"
DIGEST: Final = "sha512"


class VendoredPackage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`integrity`: `sha512-` and the digest of the archive in base64. `files`: names of the files
    here, by their path in the archive.
    """

    name: str
    version: str
    licence: str
    integrity: str
    files: dict[str, str]

    @property
    def spec(self) -> str:
        """Name and version, as npm's commands take them."""
        return f"{self.name}@{self.version}"


def read_packages() -> list[VendoredPackage]:
    return msgspec.json.decode((FOLDER / "packages.json").read_bytes(), type=list[VendoredPackage])


def extract_files(package: VendoredPackage, archive: bytes) -> dict[str, bytes]:
    """The package's files by their name here. Raises ValueError for another archive than that of
    `integrity`, and KeyError for a file that it does not have.
    """
    found = base64.b64encode(hashlib.new(DIGEST, archive).digest()).decode()
    if f"{DIGEST}-{found}" != package.integrity:
        raise ValueError(f"{package.spec} has the digest {DIGEST}-{found}, not {package.integrity}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        return {
            name: file.read()
            for path, name in package.files.items()
            if (file := members.extractfile(f"package/{path}")) is not None
        }


def download(package: VendoredPackage) -> bytes:
    """The package's archive. Raises CalledProcessError."""
    with TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, package.spec]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).iterdir()
        return archive.read_bytes()


def main() -> None:
    for package in read_packages():
        for name, content in extract_files(package, download(package)).items():
            (FOLDER / name).write_bytes(content)
            print(f"{name}: {package.name} {package.version}, {len(content)} bytes")


if __name__ == "__main__":
    main()
