"""`python -m llmservice_testing.controlplane`: a control plane to try things on, until Ctrl-C."""

import argparse
import signal
import sys
from typing import Final

from llmservice_testing.controlplane.assets import AssetsNotFoundError, UnknownSourceError, find_assets
from llmservice_testing.controlplane.processes import ServerNotReadyError
from llmservice_testing.controlplane.server import ControlPlane

_RUNNING: Final = """\
A control plane is running at {url} (no kubelet: pods are objects only). Its administrator's kubeconfig:

    export KUBECONFIG={kubeconfig}
    kubectl get namespaces

Logs are in {logs}. Ctrl-C ends it and removes everything it has stored."""


def main() -> int:
    """Runs the command and returns its exit status."""
    arguments = argparse.ArgumentParser(prog="python -m llmservice_testing.controlplane", description=__doc__)
    arguments.add_argument("--assets-only", action="store_true", help="only make sure that the programs are there")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it in order, as Ctrl-C does
    try:
        assets = find_assets()
        print(f"etcd: {assets.etcd}\nkube-apiserver: {assets.kube_apiserver}", flush=True)
        if options.assets_only:
            return 0
        with ControlPlane(assets=assets) as running:
            print(_RUNNING.format(url=running.url, kubeconfig=running.kubeconfig, logs=running.logs), flush=True)
            try:
                signal.pause()
            except KeyboardInterrupt:
                return 0  # the way to end it
    except (AssetsNotFoundError, UnknownSourceError, ServerNotReadyError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
