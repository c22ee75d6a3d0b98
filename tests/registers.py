"""The stores of the register, each real and able to become unavailable: a file, etcd, a Kubernetes
API server.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ottla_broker.metadata.register import Register
from ottla_broker.metadata.register.kubernetes import ANNOTATION
from ottla_broker.metadata.register.stores import open_register
from ottla_broker.runtime import Runtime
from tests.etcd import Etcd
from tests.kube.api_client import ApiError
from tests.kube.control_plane import ControlPlane


class RegisterStore(Protocol):
    """`environment` holds the variables that a process needs to reach the store."""

    environment: Mapping[str, str]

    def setting(self, name: str) -> str:
        """The value of the setting `register` for a register of this name."""
        ...

    def overwrite(self, name: str, text: str) -> None:
        """Replace the value of a register by `text`."""
        ...

    def make_unavailable(self) -> None: ...
    def make_available(self) -> None: ...


def connect_register(store: RegisterStore, name: str) -> Register:
    return open_register(store.setting(name), Runtime(), os.environ | dict(store.environment))


class FileStore:
    """Unavailable: a file replaces the folder, atomically, so that no broker creates a new folder
    meanwhile.
    """

    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "registers"
        self._there = folder / "there"
        self._there.mkdir()
        self._folder.symlink_to(self._there)

    def setting(self, name: str) -> str:
        return f"file:{self._folder}/{name}.json"

    def overwrite(self, name: str, text: str) -> None:
        (self._folder / f"{name}.json").write_text(text)

    def make_unavailable(self) -> None:
        other = self._folder.with_suffix(".other")
        other.touch()
        other.replace(self._folder)

    def make_available(self) -> None:
        other = self._folder.with_suffix(".other")
        other.symlink_to(self._there)
        other.replace(self._folder)


class EtcdStore:
    environment: Mapping[str, str] = {}

    def __init__(self, server: Etcd) -> None:
        self.server = server
        self.daemon = server.daemon

    def setting(self, name: str) -> str:
        return f"etcd:{self.server.url}/registers/{name}"

    def overwrite(self, name: str, text: str) -> None:
        self.server.put(f"registers/{name}", text.encode())

    def make_unavailable(self) -> None:
        self.daemon.kill()

    def make_available(self) -> None:
        self.server.start()


class LeaseStore:
    """Unavailable: the API server is killed, its etcd keeps running."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.daemon = plane.api_server
        self.environment: Mapping[str, str] = {"KUBECONFIG": str(plane.kubeconfig())}

    def setting(self, name: str) -> str:
        return f"kubernetes:default/{name}"

    def overwrite(self, name: str, text: str) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        metadata = {"name": name, "annotations": {ANNOTATION: text}}
        try:
            self.plane.admin.request("PATCH", f"{leases}/{name}", {"metadata": metadata})
        except ApiError:
            self.plane.admin.request("POST", leases, {"metadata": metadata})

    def make_unavailable(self) -> None:
        self.daemon.kill()

    def make_available(self) -> None:
        self.plane.start_api_server()
