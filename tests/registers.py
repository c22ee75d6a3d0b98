"""The stores of a register, each a real one that can be away and come back: a file, etcd, and an API server of Kubernetes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ottla_broker.metadata.register import Register
from ottla_broker.metadata.register.kubernetes import ANNOTATION
from ottla_broker.metadata.register.stores import open_register
from ottla_broker.runtime import Runtime
from tests.etcd import Etcd
from tests.kube.api import Refused
from tests.kube.control_plane import ControlPlane


class Store(Protocol):
    """`environment`: what a process needs to reach it."""

    environment: Mapping[str, str]

    def setting(self, name: str) -> str:
        """The value of `register` for a register of that name."""
        ...

    def spoil(self, name: str, text: str) -> None:
        """Puts something else where a register was."""
        ...

    def go_away(self) -> None: ...
    def come_back(self) -> None: ...


def connected(store: Store, name: str) -> Register:
    return open_register(store.setting(name), Runtime(), os.environ | dict(store.environment))


class FileStore:
    """Away: its folder cannot be reached, because something else lies there: in one step, so that nobody makes a new one meanwhile."""

    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "registers"
        self._there = folder / "there"
        self._there.mkdir()
        self._folder.symlink_to(self._there)

    def setting(self, name: str) -> str:
        return f"file:{self._folder}/{name}.json"

    def spoil(self, name: str, text: str) -> None:
        (self._folder / f"{name}.json").write_text(text)

    def go_away(self) -> None:
        other = self._folder.with_suffix(".other")
        other.touch()
        other.replace(self._folder)

    def come_back(self) -> None:
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

    def spoil(self, name: str, text: str) -> None:
        self.server.put(f"registers/{name}", text.encode())

    def go_away(self) -> None:
        self.daemon.kill()

    def come_back(self) -> None:
        self.server.start()


class LeaseStore:
    """Away: the API server is; its etcd stays."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.daemon = plane.api_server
        self.environment: Mapping[str, str] = {"KUBECONFIG": str(plane.kubeconfig())}

    def setting(self, name: str) -> str:
        return f"kubernetes:default/{name}"

    def spoil(self, name: str, text: str) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        metadata = {"name": name, "annotations": {ANNOTATION: text}}
        try:
            self.plane.admin.ask("PATCH", f"{leases}/{name}", {"metadata": metadata})
        except Refused:
            self.plane.admin.ask("POST", leases, {"metadata": metadata})

    def go_away(self) -> None:
        self.daemon.kill()

    def come_back(self) -> None:
        self.plane.start_api_server()
