"""A real control plane (etcd and kube-apiserver, no kubelet) for integration tests and the demo."""

from llmservice_testing.controlplane.assets import AssetsNotFoundError, find_assets
from llmservice_testing.controlplane.binaries import Assets
from llmservice_testing.controlplane.processes import ServerNotReadyError
from llmservice_testing.controlplane.server import ControlPlane, User

__all__ = ["Assets", "AssetsNotFoundError", "ControlPlane", "ServerNotReadyError", "User", "find_assets"]
