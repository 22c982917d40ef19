"""The sample repositories, as the tools read them."""

import subprocess
from pathlib import Path
from typing import Final

import yaml

from llmservice_testing.builders import Json

SAMPLES: Final = Path(__file__).parents[2] / "manifests" / "gitops"


def build(folder: Path) -> list[Json]:
    """The objects of a folder, as `kustomize build` gives them to Argo CD and Flux."""
    built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=30, check=True)
    return [document for document in yaml.safe_load_all(built.stdout) if document]


def llmservice(tool: str, pattern: str, *, name: str = "qwen", **spec: object) -> Json:
    """The LLMService of a sample, for a test's fleet; `spec` is what a later commit changes in it, None removes a field."""
    (manifest,) = build(SAMPLES / tool / "fleets" / pattern)
    manifest["metadata"]["name"] = name
    manifest["spec"] |= {"selector": {"matchLabels": {"app": name}}, "resyncSeconds": 1, **spec}
    manifest["spec"] = {field: value for field, value in manifest["spec"].items() if value is not None}
    return manifest


def in_namespace(manifest: Json, namespace: str) -> Json:
    """What the tools' own setting of a target namespace makes of it."""
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
