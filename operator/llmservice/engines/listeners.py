"""Where in a pod something listens on a port, and what its container says of it."""

from dataclasses import dataclass

from llmservice.domain.fleet import Pod


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of one pod."""

    url: str | None
    """``scheme://host:port``; None without a pod address or where no container has the named port."""
    container_id: str
    """Of the container that declares the port; of all, joined by spaces, if none does."""
    started: bool
    """The pod has an address and the container runs."""
    ready: bool
    """What the container's readiness probe says."""
    port_missing: bool
    """No container has a port of this name."""


def listener(pod: Pod, port: int | str, scheme: str) -> Listener:
    """What listens on ``port``, a number or the name of a container port."""
    owner = next((each for each in pod.containers if port in each.ports), None)
    concerned = (owner,) if owner is not None else pod.containers
    number = owner.ports[port] if owner is not None else port
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return Listener(
        url=f"{scheme}://{host}:{number}" if pod.ip and isinstance(number, int) else None,
        container_id=" ".join(each.container_id for each in concerned),
        started=bool(pod.ip) and any(each.running for each in concerned),
        ready=bool(concerned) and all(each.ready for each in concerned),
        port_missing=not isinstance(number, int),
    )
