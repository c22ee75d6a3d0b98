"""Writes OCI image archives (https://github.com/opencontainers/image-spec) from layer folders, as
`ctr images import` reads them.
"""

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.kube.images.dockerfile import Stage

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
OPAQUE_ATTRIBUTE = "trusted.overlay.opaque"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def write_archive(path: Path, name: str, stage: Stage, layers: Iterable[Path]) -> None:
    """Writes an archive of one image. `name` is the full reference with registry and tag. The file
    appears only when it is complete.
    """
    scratch = path.with_suffix(".making")
    with tarfile.open(scratch, "w") as archive:
        blobs = [_add_layer(archive, layer) for layer in layers]
        config = _add_json(archive, _image_config(stage, [blob["digest"] for blob in blobs]), "image.config")
        manifest = _add_json(
            archive,
            {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": blobs},
            "image.manifest",
        )
        manifest["annotations"] = {"io.containerd.image.name": name}
        _add_blob(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
        _add_blob(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    scratch.rename(path)


def _image_config(stage: Stage, layers: list[str]) -> dict[str, Any]:
    return {
        "architecture": MACHINES[platform.machine()],
        "os": "linux",
        "config": {
            "User": stage.user,
            "Env": [f"{key}={value}" for key, value in stage.environment.items()],
            "Entrypoint": stage.entrypoint or None,
            "Cmd": stage.command or None,
            "WorkingDir": stage.workdir,
            "ExposedPorts": {port if "/" in port else f"{port}/tcp": {} for port in stage.ports},
            "Labels": stage.labels,
        },
        "rootfs": {"type": "layers", "diff_ids": layers},
    }


def _add_layer(archive: tarfile.TarFile, layer: Path) -> dict[str, Any]:
    """Adds a layer as a tar blob and returns its descriptor."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_folder(tar, layer, "")
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        entry = tarfile.TarInfo(f"blobs/sha256/{digest}")
        entry.size = size
        archive.addfile(entry, file)
    return {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": f"sha256:{digest}", "size": size}


def _add_folder(tar: tarfile.TarFile, folder: Path, prefix: str) -> None:
    """Adds a folder of an overlay layer. Overlay whiteouts (devices 0:0) and opaque folders (an
    extended attribute) become the whiteout files of the OCI specification.
    """
    if prefix and OPAQUE_ATTRIBUTE in os.listxattr(folder) and os.getxattr(folder, OPAQUE_ATTRIBUTE) == b"y":
        tar.addfile(tarfile.TarInfo(f"{prefix}.wh..wh..opq"))
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            tar.addfile(tarfile.TarInfo(f"{prefix}.wh.{entry.name}"))
            continue
        tar.add(entry.path, f"{prefix}{entry.name}", recursive=False)
        if entry.is_dir(follow_symlinks=False):
            _add_folder(tar, Path(entry.path), f"{prefix}{entry.name}/")


def _add_json(archive: tarfile.TarFile, content: dict[str, Any], media_kind: str) -> dict[str, Any]:
    """Adds a JSON blob and returns its descriptor. `media_kind` is image.config or
    image.manifest."""
    data = json.dumps(content).encode()
    version = "config.v1" if media_kind == "image.config" else "manifest.v1"
    digest = hashlib.sha256(data).hexdigest()
    _add_blob(archive, f"blobs/sha256/{digest}", data)
    media = f"application/vnd.oci.image.{version}+json"
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}


def _add_blob(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
