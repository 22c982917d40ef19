"""Whether what an operator does keeps its promises, judged from outside: by what it was told, and by how the world is."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from llmservice.api import FINALIZER, LLMService, LLMServiceStatus, PauseMode, Reason
from llmservice.domain import clocks, report
from llmservice.domain.fleet import ControlCall, Sight
from llmservice.kube.client import JSON

from .engines import Behaviour, Engine, Pod
from .promises import Fact, Known, promise

if TYPE_CHECKING:
    from .process import Life, Shown
    from .world import Object, World

RELEASE_SECONDS = 60.0
FRESH_SECONDS = 1.0
TICK_SECONDS = 0.06
"""How much later than a limit in time an operator may notice it."""
HAND_OVER_SECONDS = 2.0
"""After an older LLMService went its pod may count as starting until it is read by the next one."""
DEATH_SECONDS = 29.0
"""Deaths within this time of a call certainly count."""


def aim_of(service: LLMService, wall: float) -> str | None:
    """What the engines are to be, by another reading of DESIGN section 4."""
    spec, status, generation = service.spec, service.status, service.metadata.object_generation
    if spec.generation is None:
        return None
    if service.metadata.deletion_timestamp is not None and spec.deletion_policy == "resume":
        return "running"
    is_timed = spec.max_paused_seconds is not None and spec.on_max_paused == "resume" and spec.generation == "paused"
    is_counted = status.paused_since is not None and status.paused_since_generation == generation
    since = clocks.to_seconds(status.paused_since) if status.paused_since is not None else 0.0
    if is_timed and is_counted and wall >= since + (spec.max_paused_seconds or 0) + 1.0:  # whole seconds
        return "running"
    return str(spec.generation)


# What an actor learns by reads


def read_begins(world: World, known: Known, path: str) -> None:
    """One request of a read is sent."""
    if path in ("/version", "/is_paused"):
        known.asked_at = world.now


def read_answered(world: World, known: Known, path: str, status: int, body: str) -> None:
    """One request of a read was answered."""
    match path, status:
        case "/server_info", 200:
            known.tells_sleep = bool(json.loads(body)["enable_sleep_mode"])
        case "/server_info", 404:
            known.tells_sleep = False
        case "/server_info", _:
            known.tells_sleep = None
        case "/is_paused", _:
            if status == 200:
                known.pending = Sight.PAUSED if json.loads(body)["is_paused"] else Sight.RUNNING
            elif "is_scheduler_paused" in body:
                known.pending = Sight.INCONSISTENT
            else:
                _fails(world, known, f"answered {status}")
                return
            if known.tells_sleep is False:
                _sees(world, known, known.pending)
        case "/metrics", 200:
            _sees(world, known, Sight.SLEEPING if body.rstrip().endswith(" 1.0") else known.pending)
        case "/metrics", _:
            read_failed(world, known, f"answered {status}", path)
        case "/version", _ if status not in (200, 404):
            _fails(world, known, f"answered {status}")


def read_failed(world: World, known: Known, why: str, path: str) -> None:
    """One request of a read brought no answer."""
    if path == "/server_info":
        known.tells_sleep = None
    elif path == "/metrics" and known.tells_sleep is None:
        _sees(world, known, known.pending)
    else:
        _fails(world, known, why)


def _sees(world: World, known: Known, sight: Sight | None) -> None:
    known.learn(world.now, Fact(sight, world.now, known.asked_at, known.asked_at))
    if sight is not Sight.PAUSED:
        known.is_undrained = False
    if known.last_call is not None:
        pause = known.last_call[0].pause
        is_paused = sight is Sight.SLEEPING or (sight is Sight.PAUSED and not known.is_undrained)
        known.was_effective |= is_paused if pause is not None else sight is Sight.RUNNING


def _fails(world: World, known: Known, why: str) -> None:
    known.learn(world.now, replace(known.fact, failure=why, asked_at=known.asked_at))


def notice_death(world: World, life: Life, uid: str, item: JSON) -> None:
    """The watch is about to show a pod: does it show that a call of this actor killed its container?"""
    before = life.shown.get(uid)
    if before is None or not before.started:
        return
    container_id, _ = before.place
    is_same = item["status"]["containerStatuses"][0]["containerID"] == container_id
    is_running = "running" in item["status"]["containerStatuses"][0]["state"]
    engine = world.engines.get(container_id)
    if engine is None or engine.killed_by is None or (is_same and is_running):
        return
    killer, generation = engine.killed_by
    is_ours = killer is life and {each.metadata.object_generation for each in life.services()} == {generation}
    if is_ours and world.now - life.knows(*before.place).called_at < DEATH_SECONDS:
        life.deaths.setdefault(uid, []).append((world.now, generation))


# Calls


def is_meant(life: Life, engine: Engine, url: str) -> bool:
    """Whether a call to this address is for this engine, as far as its sender can know: not where it was last shown another
    container there."""
    shown = [each for each in life.shown.values() if each.url == url]
    return not shown or any(each.place[0] == engine.container_id for each in shown)


def call_is_right(world: World, life: Life, pod: Pod, url: str, call: ControlCall) -> None:
    """A control call arrives at an engine."""
    engine, now, services = pod.engine, world.now, life.services()
    known = life.knows(engine.container_id, url)
    facts = known.facts_at(now)
    promise(now <= life.retired_at, "R13", "a call is sent for an object that is gone")
    promise(life.object_read_at >= world.stood_still_until, "R16", "a call rests on an object from before the stall")
    promise(life.sees_all or life.blind_since == now, "R11", "a call begins with an incomplete view")
    is_known = life.object_read_at >= life.blind_since or life.blind_since == now
    promise(is_known, "R16", "a call rests on an object from before the view of the pods was lost")
    aims = {aim_of(service, wall) for service in services for wall in (world.wall, world.wall - TICK_SECONDS)}
    promise(call.aim.value in aims, "R13", f"a call to be {call.aim} while {aims} is wanted")
    if not is_meant(life, engine, url):
        return
    promise(life not in engine.open_calls, "R2", "a second control call is sent while one is open")
    if engine.touched_at < now:  # otherwise this engine took the place of the one that was meant, at this very instant
        good = [fact for fact in facts if fact.failure is None and now - fact.read_at <= FRESH_SECONDS]
        promise(bool(good), "R1, R8", f"a call to {pod.name} does not follow a valid, fresh read of this very engine")
        is_current = any(
            not any(fact.read_sent_at < heard_at < now for heard_at in life.generation_heard_at.values())
            for fact in good
        )
        promise(is_current, "R1", "a call follows a read of an older spec")
        is_awake = any(fact.read_sent_at >= world.stood_still_until for fact in good)
        promise(is_awake, "R16", "a call follows a read from before the stall")
    _target_may_be_called(world, life, pod, url, known, facts)
    generations = [service.metadata.object_generation for service in services]
    is_repeated = known.last_call in [(call, each) for each in generations] and not known.was_effective
    promise(not is_repeated or now - known.called_at >= 1.0, "R4", "what failed is tried again within a second")
    if call.pause is not None:
        _pause_is_right(world, life, pod, call, known, facts)


def _target_may_be_called(world: World, life: Life, pod: Pod, url: str, known: Known, facts: list[Fact]) -> None:
    engine, now, services = pod.engine, world.now, life.services()
    slept = engine.is_asleep and known.tells_sleep and engine.asleep_since <= known.fact.read_sent_at
    promise(not slept and any(fact.sight is not Sight.SLEEPING for fact in facts), "R7", "a sleeping engine is called")
    is_claimed = pod.name == "a" and life.uid == world.main.uid and life.process.elder_heard_at < now
    promise(not is_claimed, "R12", "a pod is called that an older LLMService owns")
    generations = {service.metadata.object_generation for service in services}
    deaths = [each for at, each in life.deaths.get(pod.uid, []) if at < now and {each} == generations]
    promise(len(deaths) < 2, "R21", f"{pod.name} died twice of our calls")
    is_condemned = all(
        service.status.observed_generation == service.metadata.object_generation
        and any(
            (entry.pod_uid, entry.url, entry.reason) == (pod.uid, url, Reason.ENGINE_DIED)
            for entry in service.status.target_states
        )
        for service in services
    )
    promise(not is_condemned, "R21", f"{pod.name} is called, and the status says that it died twice")


def _pause_is_right(world: World, life: Life, pod: Pod, call: ControlCall, known: Known, facts: list[Fact]) -> None:
    services, actor = life.services(), life.actor
    assert call.pause is not None
    promise(call.pause.mode in pod.engine.build.modes, "R6", f"{call.pause.mode} is sent to {pod.engine.build.version}")
    if actor is not None:
        wanted = actor._targets.wanted.pause
        promise(call.pause == wanted, "R6, R22", f"{pod.name} understands {call.pause}, and {wanted} is meant")
    is_held = any(each.spec.deletion_policy == "leave" or FINALIZER in each.metadata.finalizers for each in services)
    promise(is_held, "deletionPolicy", "a pause is sent without the finalizer")
    is_unanswered = any(each.status.last_pause is not None and not each.status.last_pause.answered for each in services)
    if call.is_wait:
        promise(is_unanswered, "R5", "a wait is sent, and the object does not say so")
    if all(fact.sight is Sight.PAUSED for fact in facts):
        may_drain = is_unanswered or known.is_undrained
        promise(may_drain, "R5", "an engine that is paused is paused once more")
    _gate_is_closed(world, life, pod)


def _gate_is_closed(world: World, life: Life, pod: Pod) -> None:
    gate = pod.gate
    delay = min(each.spec.pause.drain_delay_seconds for each in life.services())
    if gate is None or gate.serving is None:
        return
    refused_at = life.gate_refused_at.get(pod.uid)
    if refused_at is not None and world.wall >= refused_at + delay - 0.001:
        return
    if gate.serving:
        shown = life.shown.get(pod.uid)
        is_shown = shown is not None and shown.item["metadata"]["resourceVersion"] == str(pod.version)
        is_known = pod.opened_by is life or (is_shown and shown is not None and shown.at < world.now)
        promise(not is_known, "readiness gate", "a pause is sent while the pod is in service")
    else:
        is_over = world.wall >= gate.since + delay - 0.001
        promise(is_over, "drainDelaySeconds", "a pause is sent before the delay is over")


def call_is_given_up(
    world: World,
    life: Life,
    pod: Pod,
    url: str,
    engine: Engine,
    call: ControlCall,
    sent_at: float,
    timeout: float,
    was_meant: bool,
) -> None:
    """The connection of an open control call was closed by its sender; the engine does not notice."""
    is_over = world.now >= sent_at + timeout - 0.001
    is_other = world.pods.get(pod.name) is not pod or pod.engine is not engine or pod.address not in url
    is_other |= engine.touched_at >= sent_at or not was_meant
    is_claimed = pod.name == "a" and world.elder is not None
    if not life.process.is_alive or is_over or is_other or is_claimed or life.retired_at <= world.now:
        return
    promise(call.is_wait, "R2", "another call than a wait is called off")
    promise(engine.build.can_overtake, "R2", "a drain is called off that nothing can overtake")
    may_be = any(
        aim_of(each, world.wall) == "running"
        or (aim_of(each, world.wall) == "paused" and each.spec.pause.mode is PauseMode.ABORT)
        for each in life.services()
    )
    promise(may_be, "R2", "a drain is called off that is wanted")


# What is written


def status_is_true(world: World, life: Life, body: JSON) -> None:
    """A status is sent."""
    status = LLMServiceStatus.model_validate(body["status"])
    for service in life.services():
        if status.model_copy(update={"last_pause": service.status.last_pause}) == service.status:
            return  # only how the pause is asked is stored
    conditions = {each.type: each for each in status.conditions}
    are_both = {"Stalled", "Reconciling"} <= set(conditions)
    promise(not are_both, "conditions", "Stalled and Reconciling stand together")
    is_ready = conditions["Ready"].status == "True"
    promise(not is_ready or not {"Stalled", "Reconciling"} & set(conditions), "conditions", "Ready, and it is not")
    for each in status.conditions:
        promise(each.observed_generation == status.observed_generation, "R19", "conditions lag")
    promise(life.retired_at >= world.now, "R13", "a status is sent for an object that is gone")
    heard_at = life.generation_heard_at.get(status.observed_generation)
    if heard_at is None:
        promise(False, "R19", f"nobody told of the generation {status.observed_generation}")
        return
    says = {"True": True, "False": False, "Unknown": None}[conditions["Paused"].status]
    promise(status.paused is says, "R18", "status.paused and the condition differ")
    _targets_are_as_said(world, life, status, heard_at, conditions["Ready"].reason)
    if status.paused and body["metadata"]["resourceVersion"] == str(world.main.version) and life.uid == world.main.uid:
        _nobody_drains(world, life)
    _times_are_right(world, life, status, {each.type: each.reason for each in status.conditions}.get("Stalled"))
    _verify_is_done(world, life, status)


def _members(world: World, life: Life) -> list[tuple[Shown, list[Fact]]]:
    """The targets of this actor, as the watch showed them; without those that changed at this very instant."""
    process, now = life.process, world.now
    is_contested = life.uid == world.main.uid and (
        process.elder_heard_at <= now or process.elder_gone_at >= now - HAND_OVER_SECONDS
    )
    return [
        (shown, _facts(world, life, shown))
        for shown in life.shown.values()
        if shown.changed_at < now and not (is_contested and shown.name == "a")
    ]


def _facts(world: World, life: Life, shown: Shown) -> list[Fact]:
    """What is known of a target. Where the watch is behind, another container may have answered in its place."""
    facts, now = life.knows(*shown.place).facts_at(world.now), world.now
    if _is_there(world, shown):
        return facts
    others = [known for (_, url), known in life.known.items() if url == shown.url]
    return facts + [fact for known in others for fact in known.facts_at(now) if fact not in facts]


def _is_there(world: World, shown: Shown) -> bool:
    """Whether the container that the watch showed at an address is the one that answers there."""
    return any((pod.engine.container_id, f"http://{pod.address}:8000") == shown.place for pod in world.pods.values())


def _may_start(shown: Shown, fact: Fact) -> bool:
    """By R9."""
    return not shown.started or (not shown.ready and (fact.failure == "refused" or fact.sight is None))


def _targets_are_as_said(world: World, life: Life, status: LLMServiceStatus, heard_at: float, ready: str) -> None:
    members = _members(world, life)
    expected = [(shown, facts) for shown, facts in members if not any(_may_start(shown, fact) for fact in facts)]
    if status.paused is not None:
        is_any = any(fact.sight is not None for shown in life.shown.values() for fact in _facts(world, life, shown))
        promise(is_any, "R18", "paused is known, and nobody was read")
        for shown, facts in expected:
            _was_read_as(shown, facts, heard_at, is_paused=status.paused)
    aims = {aim_of(each, wall) for each in life.services() for wall in (world.wall, world.wall - TICK_SECONDS)}
    if ready == Reason.IN_DESIRED_STATE and len(aims) == 1:
        for shown, facts in expected:
            _was_read_as(shown, facts, heard_at, is_paused=aims == {"paused"})
    may_start = [shown for shown, facts in members if any(_may_start(shown, fact) for fact in facts)]
    unsure = len(life.shown) - len(members) + life.gone.count(world.now)
    starting = status.targets.starting if status.targets is not None else 0
    promise(starting <= len(may_start) + unsure, "R9", "a target that may generate counts as starting")


def _was_read_as(shown: Shown, facts: list[Fact], heard_at: float, *, is_paused: bool) -> None:
    fitting = (Sight.PAUSED, Sight.SLEEPING) if is_paused else (Sight.RUNNING,)
    does_fit = any(
        fact.sight in fitting and fact.read_sent_at >= heard_at and not fact.is_called_since for fact in facts
    )
    what = "paused" if is_paused else "running"
    promise(does_fit, "R18", f"{shown.name} is told to be {what}, and was last read as {'' if does_fit else facts[-1]}")


def _nobody_drains(world: World, life: Life) -> None:
    # Under another spec than paused nobody waits for a drain, so that there paused means what is_paused says.
    if {aim_of(each, world.wall) for each in life.services()} != {"paused"}:
        return
    alive = {pod.engine.container_id for pod in world.pods.values()}
    for shown, _ in _members(world, life):
        engine = world.engines[shown.place[0]]
        if engine.container_id not in alive:
            continue  # it went with its work, and the watch is about to tell
        is_known = life in engine.asked_by or engine.is_in_the_object
        drains = is_known and shown.started and engine.is_paused and engine.generates(world.now)
        promise(not drains, "R5", f"{shown.name} drains, and is told to be paused")


def _times_are_right(world: World, life: Life, status: LLMServiceStatus, stalled: str | None) -> None:
    before = life.services()[-1].status
    if stalled == Reason.PROGRESS_DEADLINE_EXCEEDED:
        promise(status.progressing_since is not None, "progressDeadlineSeconds", "overdue without a clock")
    if status.paused_since is not None and before.paused_since_generation != status.observed_generation:
        sights = {fact.sight for known in life.known.values() for _, fact in known.facts}
        is_any = bool(sights & {Sight.PAUSED, Sight.SLEEPING})
        promise(is_any, "maxPausedSeconds", "the clock of a pause runs, and nothing was read as paused")


def _verify_is_done(world: World, life: Life, status: LLMServiceStatus) -> None:
    """What is asked for afresh is done: every target was read, or failed, by a read that was sent since."""
    echo = status.last_handled_verify
    if echo is None or any(each.status.last_handled_verify == echo for each in life.services()):
        return
    heard_at = life.verify_heard_at.get(echo)
    if heard_at is None:
        promise(False, "verify", f"an echo of {echo}, which nobody asked for")
        return
    condemned = {entry.pod_uid for entry in status.target_states if entry.reason == Reason.ENGINE_DIED}
    for shown, facts in _members(world, life):
        is_asked = _is_there(world, shown) and shown.started and shown.at <= heard_at and shown.uid not in condemned
        is_fresh = any(fact.asked_at >= heard_at for fact in facts)
        promise(is_fresh or not is_asked, "verify", f"{shown.name} was not read since it was asked for")


def write_is_right(world: World, found: Object, status: LLMServiceStatus) -> None:
    """A status is stored."""
    before, generation = found.service.status, found.object_generation
    promise(status != before, "R14", "the same is written again")
    promise(status.observed_generation >= before.observed_generation, "R19", "observedGeneration goes back")
    promise(status.observed_generation <= generation, "R19", "observedGeneration is ahead")
    earlier = {each.type: each for each in before.conditions}
    for each in status.conditions:
        known = earlier.get(each.type)
        if known is None:
            continue
        has_moved = known.last_transition_time != each.last_transition_time
        promise(not has_moved or known.status != each.status, "R19", f"{each.type} moves without its status")
        goes_on = known.status == each.status or each.last_transition_time >= known.last_transition_time
        promise(goes_on, "R19", "lastTransitionTime goes back")
    if before.paused_since_generation == generation == status.observed_generation:
        promise(status.paused_since == before.paused_since, "maxPausedSeconds", "the clock of a pause is set anew")


def release_is_right(world: World, found: Object) -> None:
    """The finalizer goes: every engine that could be read since the deletion runs, or a minute is over."""
    assert found.deleted is not None
    deleted_at = clocks.to_seconds(found.deleted)
    if world.wall >= deleted_at + RELEASE_SECONDS or aim_of(found.service, world.wall) != "running":
        return
    for pod in world.pods.values():
        engine, is_contested = pod.engine, pod.name == "a" and world.elder is not None
        is_sound = engine.behaviour is Behaviour.SOUND and engine.latency < 1.0 and pod.listens and pod.ready
        is_untouched = engine.touched_at + world.wall - world.now < deleted_at
        if is_sound and not engine.is_asleep and is_untouched and not is_contested:
            runs = not engine.is_paused and not engine.disagrees
            promise(runs, "deletionPolicy", f"{pod.name} is left paused although it could be resumed")


def tally_is_right(world: World, life: Life) -> None:
    """ADR 3: what is counted as it changes is what is counted anew."""
    actor = life.actor
    if actor is None or not life.process.is_alive:
        return
    targets, now = actor._targets, world.now
    if targets._slots.next_due() <= now:
        return  # gathered for a moment
    anew = Counter(report.standing(targets.wanted, slot.state, now) for slot in targets._slots)
    if targets.tally != anew:
        promise(False, "ADR 3", f"the tally is {targets.tally}, made anew it is {anew}")
