"""A small synchronous client for tests and the demo: what they do to a cluster, by name.

It is a client of its own, not the operator's: a test that looked at the world through the code under test could not
see that code's mistakes.

    ClusterError
    ├── ApiError             the API server answered with an error; carries its status, reason and message
    │   ├── NotFoundError
    │   ├── ConflictError    also "already exists"
    │   ├── InvalidError     what validation (schema or CEL) refuses
    │   └── ForbiddenError
    ├── UnreachableError     no answer: refused, cut, or none within the request timeout
    ├── KubeconfigError      a kubeconfig that cannot be used
    └── WaitTimeoutError     `wait_until` waited in vain
"""

import contextlib
import functools
import json
import os
import ssl
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx
import yaml

from llmservice_testing.builders import API_VERSION, Json, LLMServiceBuilder, PodBuilder

T = TypeVar("T")

REQUEST_TIMEOUT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.05
FIELD_MANAGER: Final = "llmservice-testing"
_LLMSERVICES: Final = f"/apis/{API_VERSION}/namespaces/{{}}/llmservices"
_LIST_SECONDS: Final = 30.0
_PODS: Final = "/api/v1/namespaces/{}/pods"


class ClusterError(Exception):
    """Anything that went wrong with the cluster."""


class ApiError(ClusterError):
    """The API server refused a request; the message is its own."""

    def __init__(self, request: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409: the object exists already, or was changed meanwhile."""


class InvalidError(ApiError):
    """422: the schema or a CEL rule refuses the object."""


class ForbiddenError(ApiError):
    """403: RBAC or admission refuses the request."""


class UnreachableError(ClusterError):
    """The API server gave no answer."""


class KubeconfigError(ClusterError):
    """A kubeconfig file cannot be used."""


class WaitTimeoutError(ClusterError, AssertionError):
    """A condition did not come true in time. An AssertionError, so that pytest shows it as a failure."""


_ERRORS: Final[dict[int, type[ApiError]]] = {
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: InvalidError,
}


def wait_until(
    predicate: Callable[[], T | None], timeout: float, *, what: str = "", last: Callable[[], object] | None = None
) -> T:
    """Polls `predicate` until it returns something true, and returns that.

    After `timeout` seconds it raises WaitTimeoutError, which names `what` was waited for and shows the last value of
    `predicate`, or of `last` where that says more (the object itself, say). NotFoundError and UnreachableError count as
    "not yet"; every other exception passes through at once.
    """
    deadline = time.monotonic() + timeout
    while True:
        seen: object
        try:
            value = predicate()
            if value:
                return value
            seen = value
        except (NotFoundError, UnreachableError) as error:
            seen = error
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(_wait_failure(predicate, timeout, what, seen, last))
        time.sleep(POLL_SECONDS)


def _wait_failure(
    predicate: Callable[[], object], timeout: float, what: str, seen: object, last: Callable[[], object] | None
) -> str:
    if last is not None:
        try:
            seen = last()
        except ClusterError as error:
            seen = error
    shown = json.dumps(seen, indent=2, default=repr) if isinstance(seen, dict | list) else repr(seen)
    name = what or getattr(predicate, "__qualname__", repr(predicate))
    return f"waited {timeout:g} s in vain for: {name}\nlast seen: {shown}"


class Cluster:
    """One cluster, with the rights of one kubeconfig file's current user. Thread-safe; close it, or use `with`."""

    def __init__(self, kubeconfig: Path, *, request_timeout: float = REQUEST_TIMEOUT_SECONDS) -> None:
        """`request_timeout` in seconds, for each request. Raises KubeconfigError."""
        self.kubeconfig = kubeconfig
        server, headers, context = _connection(kubeconfig)
        self._client = httpx.Client(
            base_url=server, headers=headers, verify=context, timeout=request_timeout, trust_env=False
        )

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Any object

    def request(
        self, method: str, path: str, *, body: object = None, content_type: str = "application/json", **query: str
    ) -> Json:
        """Sends one request and returns the answer's JSON. Raises ApiError or UnreachableError."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if content is not None else {}
        try:
            response = self._client.request(method, path, params=query, content=content, headers=headers)
        except httpx.TransportError as error:
            raise UnreachableError(f"{method} {path}: {type(error).__name__}: {error}") from error
        if response.is_success:
            answer: Json = response.json()
            return answer
        raise _api_error(f"{method} {path}", response)

    def get(self, path: str, **query: str) -> Json:
        """Reads what is at an API path."""
        return self.request("GET", path, **query)

    def merge_patch(self, path: str, patch: Json) -> Json:
        """Sends a JSON merge patch: None removes a field, a list replaces the whole list."""
        return self.request("PATCH", path, body=patch, content_type="application/merge-patch+json")

    def apply(self, manifest: Json, *, namespace: str | None = None) -> Json:
        """Applies an object of any kind that the API server serves (server-side apply, conflicts are overridden).

        A namespaced object goes to `namespace`, to its own, or to `default`, the first that is given.
        """
        version, kind, name = manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resources = self.get(root)["resources"]
        found = [one for one in resources if one["kind"] == kind and "/" not in one["name"]]
        if not found:
            raise ClusterError(f"the API server serves no {kind} in {version}")
        folder = root
        if found[0]["namespaced"]:
            folder += f"/namespaces/{namespace or manifest['metadata'].get('namespace', 'default')}"
        return self.request(
            "PATCH",
            f"{folder}/{found[0]['name']}/{name}",
            body=manifest,
            content_type="application/apply-patch+yaml",
            fieldManager=FIELD_MANAGER,
            force="true",
        )

    def apply_file(self, path: Path, *, namespace: str | None = None) -> list[Json]:
        """Applies every document of a YAML file, in its order."""
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
        return [self.apply(document, namespace=namespace) for document in documents]

    # Custom resource definitions, namespaces, users

    def apply_crd(self, path: Path, *, timeout: float = 30) -> None:
        """Applies a file of CustomResourceDefinitions and waits until each is served.

        Served means: established, in discovery, in the OpenAPI document, which follows a moment later and which clients
        read too, and to be listed: at first that is answered with 429 ("storage is (re)initializing"). When a definition
        that was there before is *changed*, the old schema may still be served for a moment; `delete_crd` first where that
        matters.
        """
        for definition in self.apply_file(path):
            wait_until(
                functools.partial(self._is_served, definition),
                timeout,
                what=f"CustomResourceDefinition {definition['metadata']['name']} being served",
            )

    def delete_crd(self, name: str, *, timeout: float = 30) -> None:
        """Deletes a CustomResourceDefinition with all its objects, and waits until it is gone."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        self.request("DELETE", path)
        wait_until(lambda: not self._exists(path), timeout, what=f"CustomResourceDefinition {name} being gone")

    def create_namespace(self, name: str) -> None:
        """Creates a namespace."""
        self.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})

    def delete_namespace(self, name: str) -> None:
        """Begins to delete a namespace; without a controller manager it stays Terminating, with all that is in it."""
        self.request("DELETE", f"/api/v1/namespaces/{name}")

    def service_account_token(self, namespace: str, name: str) -> str:
        """Creates a service account unless it is there, and returns a token of it that is good for an hour."""
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, namespace=namespace)
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.request("POST", path, body={"spec": {"expirationSeconds": 3600}})
        return str(answer["status"]["token"])

    # LLMServices

    def create_llmservice(self, namespace: str, llmservice: LLMServiceBuilder | Json) -> Json:
        """Creates an LLMService and returns it as stored, defaults included."""
        body = llmservice.obj() if isinstance(llmservice, LLMServiceBuilder) else llmservice
        return self.request("POST", _LLMSERVICES.format(namespace), body=body)

    def get_llmservice(self, namespace: str, name: str) -> Json:
        """Reads one LLMService."""
        return self.get(f"{_LLMSERVICES.format(namespace)}/{name}")

    def list_llmservices(self, namespace: str) -> list[Json]:
        """Reads all LLMServices of a namespace. For a moment after the API server has started, or the definition has changed,
        it is not ready to list them: that is waited for. Raises NotFoundError where the definition is gone."""
        path = _LLMSERVICES.format(namespace)
        if self._list(path) is None:
            wait_until(lambda: self._list(path) is not None, _LIST_SECONDS, what="LLMServices being listed")
        items: list[Json] = self.get(path)["items"]
        return items

    def patch_llmservice(self, namespace: str, name: str, patch: Json, *, subresource: str = "") -> Json:
        """Sends a merge patch to an LLMService, or to its `status`; `patch` holds `spec`, `metadata` or `status`."""
        return self.merge_patch(f"{_LLMSERVICES.format(namespace)}/{name}/{subresource}".rstrip("/"), patch)

    def delete_llmservice(self, namespace: str, name: str) -> None:
        """Deletes an LLMService; where it has a finalizer this only begins the deletion."""
        self.request("DELETE", f"{_LLMSERVICES.format(namespace)}/{name}")

    # Events and pods

    def list_events(self, namespace: str, *, about: str | None = None) -> list[Json]:
        """The events of a namespace in the order they were last written; `about` keeps those on an object so named.

        Their times have a resolution of one second, so the order is that of the resource versions.
        """
        items: list[Json] = self.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        chosen = [event for event in items if about is None or event["involvedObject"].get("name") == about]
        return sorted(chosen, key=lambda event: int(event["metadata"]["resourceVersion"]))

    def create_pod(self, namespace: str, pod: PodBuilder | Json) -> Json:
        """Creates a pod, gives it the status that it carries, and returns it as stored."""
        body = pod.obj() if isinstance(pod, PodBuilder) else pod
        created = self.request("POST", _PODS.format(namespace), body=body)
        if "status" not in body:
            return created
        return self.set_pod_status(namespace, pod)

    def get_pod(self, namespace: str, name: str) -> Json:
        """Reads one pod."""
        return self.get(f"{_PODS.format(namespace)}/{name}")

    def list_pods(self, namespace: str) -> list[Json]:
        """Reads all pods of a namespace."""
        items: list[Json] = self.get(_PODS.format(namespace))["items"]
        return items

    def set_pod_status(self, namespace: str, pod: PodBuilder | Json) -> Json:
        """Gives a pod the status of a builder (or of a pod's JSON), in one patch, as a kubelet would.

        Conditions are merged by type, so one that somebody else wrote (a readiness gate's) stays. Everything else is
        replaced, and None removes. It is a strategic merge patch, which would *add* to `podIPs`; `$patch: replace`
        keeps it from that.
        """
        name, status = (
            (pod.name, pod.status()) if isinstance(pod, PodBuilder) else (pod["metadata"]["name"], dict(pod["status"]))
        )
        if status.get("podIPs"):
            status["podIPs"] = [*status["podIPs"], {"$patch": "replace"}]
        return self.request(
            "PATCH",
            f"{_PODS.format(namespace)}/{name}/status",
            body={"status": status},
            content_type="application/strategic-merge-patch+json",
        )

    def patch_pod(self, namespace: str, name: str, patch: Json, *, subresource: str = "") -> Json:
        """Sends a merge patch to a pod (its labels, say), or to its `status`."""
        return self.merge_patch(f"{_PODS.format(namespace)}/{name}/{subresource}".rstrip("/"), patch)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Deletes a pod at once: no grace, so nobody needs to confirm that it ended."""
        self.request("DELETE", f"{_PODS.format(namespace)}/{name}", gracePeriodSeconds="0")

    def terminate_pod(self, namespace: str, name: str, *, grace_seconds: int = 30) -> Json:
        """Makes a pod terminating: it has a deletionTimestamp, and stays until `delete_pod`.

        That is what a kubelet sees while it ends the containers; here no kubelet ever reports that it is done.
        """
        return self.request("DELETE", f"{_PODS.format(namespace)}/{name}", gracePeriodSeconds=str(grace_seconds))

    def _exists(self, path: str) -> bool:
        try:
            self.get(path)
        except NotFoundError:
            return False
        return True

    def _is_served(self, definition: Json) -> bool:
        spec, name = definition["spec"], definition["metadata"]["name"]
        stored = self.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        conditions = {one["type"]: one["status"] for one in stored["status"]["conditions"] or ()}  # null at first
        if conditions.get("Established") != "True":
            return False
        groups = [f"apis/{spec['group']}/{version['name']}" for version in spec["versions"] if version["served"]]
        documented = self.get("/openapi/v3")["paths"]
        plural = spec["names"]["plural"]
        return all(
            group in documented
            and plural in {one["name"] for one in self.get(f"/{group}")["resources"]}
            and self._list(f"/{group}/{plural}") is not None
            for group in groups
        )

    def _list(self, path: str) -> list[Json] | None:
        """None where the API server is not ready to."""
        try:
            items: list[Json] = self.get(path)["items"]
        except ApiError as error:
            if error.status != 429:
                raise
            return None
        return items


def _api_error(request: str, response: httpx.Response) -> ApiError:
    try:
        status: Json = response.json()
        reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    except ValueError:  # not every answer is a Status object: "404 page not found" is plain text
        reason, message = response.reason_phrase, response.text.strip()
    return _ERRORS.get(response.status_code, ApiError)(request, response.status_code, reason, message)


def _connection(path: Path) -> tuple[str, dict[str, str], ssl.SSLContext]:
    """Where the current context's cluster is, the headers that say who we are, and how to verify it."""
    try:
        config = yaml.safe_load(path.read_text())
        contexts = {one["name"]: one["context"] for one in config["contexts"]}
        context = contexts[config["current-context"]]
        cluster = {one["name"]: one["cluster"] for one in config["clusters"]}[context["cluster"]]
        user = {one["name"]: one["user"] for one in config["users"]}[context["user"]]
        server = str(cluster["server"])
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise KubeconfigError(f"{path} is no usable kubeconfig: {error!r}") from error
    verification = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=b64decode(cluster.get("certificate-authority-data", "")).decode() or None,
    )
    if "client-certificate-data" in user:
        with _client_certificate(user) as file:
            verification.load_cert_chain(file)
    elif "token" not in user:
        raise KubeconfigError(f"{path}: user {context['user']} has neither a token nor client-certificate-data")
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    return server, headers, verification


@contextlib.contextmanager
def _client_certificate(user: Json) -> Iterator[str]:
    """The user's certificate and key in a file, for a moment: Python's ssl reads them from files only."""
    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(b64decode(user["client-certificate-data"]) + b"\n" + b64decode(user["client-key-data"]))
        yield name
    finally:
        Path(name).unlink()
