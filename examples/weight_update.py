"""Gives every engine of a fleet the weights of a checkpoint, while none of them generates.

    python examples/weight_update.py qwen /checkpoints/step-42

The folder must be there for the engines, as on a volume that they share. They are vLLM 0.32 or newer, started with
VLLM_SERVER_DEV_MODE=1 (which /pause needs as well) and with a `--load-format` that reads from disk. A trainer that sends
its weights over the network does the same with `/start_weight_update`, `/update_weights` and `/finish_weight_update` in
`load`.

Exit status: 0 if all engines have the new weights and generate again, 1 if the fleet could not be paused or resumed, 2 if
the weights could not be loaded. In the last case it stays paused, for a person to look at.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from llmservice.client import FleetError, fleet

LOAD_SECONDS = 600


class WeightsError(Exception):
    """An engine did not load its weights, or not the same as the others."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Give every engine of a fleet other weights.")
    parser.add_argument("fleet", help="name of the LLMService")
    parser.add_argument("checkpoint", help="a folder that the engines can read")
    parser.add_argument("--namespace", help="default: that of the pod, or of the kubeconfig's context")
    parser.add_argument(
        "--mode", choices=["abort", "wait", "keep"], default="keep", help="for requests in flight (keep)"
    )
    arguments = parser.parse_args()
    try:
        update(arguments.fleet, arguments.namespace, arguments.mode, arguments.checkpoint)
    except (FleetError, WeightsError) as error:
        print(error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 2 if isinstance(error, WeightsError) else 1
    return 0


def update(name: str, namespace: str | None, mode: str, checkpoint: str) -> None:
    """Raises FleetError or WeightsError."""
    qwen = fleet(name, namespace=namespace, manager="weight-update")
    with qwen.paused(mode=mode, clear_cache=mode != "keep", resume_on_error=False) as p:
        urls = [url for pod in p.pods for url in pod.urls]
        print(f"{len(urls)} engines are paused")
        with ThreadPoolExecutor(max_workers=32) as pool:
            found = dict(zip(urls, pool.map(lambda url: load(url, checkpoint), urls), strict=True))
        if len(set(found.values())) > 1:
            raise WeightsError(f"the engines have different weights now: {found}")
        p.check()  # nobody resumed them meanwhile
        print(f"{len(urls)} engines have the weights of {checkpoint}")
    print("they generate again")


def load(url: str, checkpoint: str) -> str:
    """Have one engine load the weights; returns what tells them from others. Raises WeightsError."""
    post(url, "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": checkpoint}})
    checksums = post(url, "/weight_checker", {"action": "checksum"})["checksums"]
    return json.dumps(checksums, sort_keys=True)


def post(url: str, path: str, body: dict) -> dict:
    """Raises WeightsError."""
    request = urllib.request.Request(
        url + path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=LOAD_SECONDS) as answer:
            return json.loads(answer.read() or "{}")
    except urllib.error.HTTPError as error:
        raise WeightsError(f"{url}{path} answered {error.code}: {error.read(2000).decode(errors='replace')}") from error
    except (OSError, ValueError) as error:
        raise WeightsError(f"{url}{path}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
