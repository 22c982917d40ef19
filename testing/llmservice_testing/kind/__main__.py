"""`python -m llmservice_testing.kind`: a cluster in containers with the images of this repository."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from llmservice_testing.kind import cluster, daemon, images, node_image, real_engine
from llmservice_testing.kind.docker import size_of
from llmservice_testing.kind.places import KUBECONFIG, NODE
from llmservice_testing.kind.running import KindError

_UP: Final = """\
The cluster is up; its node is the container {node}. To use it:

    export KUBECONFIG={kubeconfig}
    kubectl apply --server-side -f manifests/install.yaml

To remove it: python -m llmservice_testing.kind down"""


def main() -> int:
    """Runs a command and returns the exit status."""
    arguments, words = _parse()
    try:
        match arguments.command:
            case "up":
                up()
                print(_UP.format(node=NODE, kubeconfig=KUBECONFIG))
            case "run":
                return run_in_cluster(words, keep=arguments.keep)
            case "load":
                daemon.ensure_daemon()
                cluster.load(images.build_all())
            case "node-image":
                daemon.ensure_daemon()
                print(node_image.build())
            case "images":
                daemon.ensure_daemon()
                for image in images.build_all():
                    print(f"{image} {size_of(image) / 1e6:.0f} MB")
            case "logs":
                print(cluster.save_logs())
            case "down":
                down(stop_daemon=arguments.daemon)
    except KindError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def up() -> None:
    """Makes the cluster if it is not there, and loads the images as they are now. Raises KindError."""
    daemon.ensure_daemon()
    built = images.build_all()
    if not cluster.exists():
        cluster.create(node_image.chosen(), real_engine.mounts())
    cluster.load(built)


def run_in_cluster(command: Sequence[str], *, keep: bool) -> int:
    """Makes a cluster, runs a command in it and returns its exit status. Whatever happens the cluster is removed, unless
    it is to be kept; after a failure its logs are saved first. Raises KindError."""
    daemon.ensure_daemon()
    failed = True
    try:
        up()
        status = subprocess.run(command, env={**os.environ, "KUBECONFIG": str(KUBECONFIG)}).returncode
        failed = status != 0
        return status
    finally:
        try:
            if failed and cluster.exists():
                print(f"Logs of the node and the pods: {cluster.save_logs()}", file=sys.stderr)
        finally:
            if not keep:
                down(stop_daemon=True)


def down(*, stop_daemon: bool) -> None:
    """Removes the cluster; `stop_daemon` also stops Docker if it was started here. Raises KindError."""
    if daemon.answers():
        cluster.delete()
    if stop_daemon:
        daemon.stop_daemon()


def _parse() -> tuple[argparse.Namespace, list[str]]:
    """The options, and for `run` the words of the command."""
    parser = argparse.ArgumentParser(prog="python -m llmservice_testing.kind", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="make the cluster unless it is there, and load the images")
    run_ = commands.add_parser("run", help="make the cluster, run a command with its KUBECONFIG, remove it")
    run_.add_argument("--keep", action="store_true", help="do not remove the cluster")
    run_.add_argument("words", nargs="+", metavar="-- COMMAND")
    commands.add_parser("load", help="build the images and load them into the cluster")
    commands.add_parser("node-image", help="make a node image without a registry, and print its name")
    commands.add_parser("images", help="build the images, and print their sizes")
    commands.add_parser("logs", help="save the logs of the node and the pods")
    down_ = commands.add_parser("down", help="remove the cluster")
    down_.add_argument("--daemon", action="store_true", help="stop Docker, too, if it was started here")
    arguments = parser.parse_args()
    return arguments, getattr(arguments, "words", [])


if __name__ == "__main__":
    sys.exit(main())
