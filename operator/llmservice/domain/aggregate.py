"""Engines that consist of several processes and answer as one: what "paused" proves of them.

A Ray Serve application says that it is paused as soon as one of its replicas is, and a call that it answered may have
missed a replica that came later. "Not paused" is about all of them; "paused" proves something only for the replicas for
which a pause was answered. So a pause is asserted again whenever the replicas are others than those, and only then. A
digest of proxies and replicas comes with each read; the one that counts is kept with the target, and in the status for an
operator that starts anew.
"""

from llmservice.domain.fleet import Sight, TargetState
from llmservice.domain.policy import Wanted


def is_proven(wanted: Wanted, state: TargetState) -> bool:
    """Whether the last valid read is about the whole engine."""
    return state.sight is not Sight.PAUSED or is_covered(wanted, state, state.replicas)


def is_covered(wanted: Wanted, state: TargetState, replicas: str) -> bool:
    """Whether a pause was answered for ``replicas``. An engine that speaks for itself is always covered."""
    return not state.target.is_aggregate or replicas in (state.paused_replicas, wanted.paused_replicas)
