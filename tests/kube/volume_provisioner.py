"""A volume provisioner: volumes are folders of this machine, visible on every node like network
storage.

It creates volumes for the claims of its storage class, expands them, and deletes them when they are
released.
"""

import shutil
import threading
from pathlib import Path

from tests.kube.api_client import ApiClient, ApiError, Json

STORAGE_CLASS = "folders"
POLL_INTERVAL_S = 0.2
ANY_NODE = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}


class VolumeProvisioner:
    """`folder` contains the volumes. Runs in its own thread from `start()` to `stop()`."""

    def __init__(self, api: ApiClient, folder: Path) -> None:
        self._api = api
        self._folder = folder
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="volume-provisioner", daemon=True)

    def start(self) -> None:
        """Creates the storage class and starts the thread."""
        self._folder.mkdir()
        self._api.request(
            "POST",
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {
                    "name": STORAGE_CLASS,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": "ottla.test/folders",
                "allowVolumeExpansion": True,
            },
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_INTERVAL_S):
            try:
                self._provision()
            except (OSError, ApiError):
                continue  # the API server is unavailable, or the object changed: retried at the next poll

    def _provision(self) -> None:
        """Creates, expands and deletes volumes as the current claims require."""
        for claim in self._api.request("GET", "/api/v1/persistentvolumeclaims")["items"]:
            if claim["spec"].get("storageClassName") != STORAGE_CLASS or "deletionTimestamp" in claim["metadata"]:
                continue
            if not claim["spec"].get("volumeName"):
                self._create_volume(claim)
            elif claim.get("status", {}).get("capacity", {}) not in ({}, claim["spec"]["resources"]["requests"]):
                self._expand_volume(claim)
        for volume in self._api.request("GET", "/api/v1/persistentvolumes")["items"]:
            if volume.get("status", {}).get("phase") == "Released":
                shutil.rmtree(volume["spec"]["local"]["path"], ignore_errors=True)
                self._api.request("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")

    def _create_volume(self, claim: Json) -> None:
        metadata = claim["metadata"]
        name = f"volume-{metadata['uid']}"
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        if self._api.get(f"/api/v1/persistentvolumes/{name}") is not None:
            return  # exists, but Kubernetes has not bound it yet
        spec = {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": "Retain",  # this thread deletes it
            "storageClassName": STORAGE_CLASS,
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
            | {key: metadata[key] for key in ("name", "namespace", "uid")},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [ANY_NODE]}]}},
        }
        self._api.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})

    def _expand_volume(self, claim: Json) -> None:
        metadata, capacity = claim["metadata"], claim["spec"]["resources"]["requests"]
        self._api.request(
            "PATCH", f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}", {"spec": {"capacity": capacity}}
        )
        path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}/status"
        self._api.request("PATCH", path, {"status": {"capacity": capacity}})
