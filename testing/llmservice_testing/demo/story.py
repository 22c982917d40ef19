"""What is shown, in numbered steps. Whatever a step says has been checked; what does not come true ends the demo."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from llmservice_testing.demo.errors import DemoError
from llmservice_testing.demo.fleet import NAME, NAMESPACE, RESYNC_SECONDS, Member, manifest, member
from llmservice_testing.demo.kubectl import Kubectl
from llmservice_testing.demo.recorder import Recorder
from llmservice_testing.demo.request import OpenRequest
from llmservice_testing.demo.screen import Screen
from llmservice_testing.demo.stage import Stage

DEADLINE_SECONDS: Final = 30.0
"""For all that an operator does within a second or two; a busy CI machine takes its time."""
_POLL_SECONDS: Final = 0.005
_STILL_SECONDS: Final = 0.5
_EVENTS: Final = {"PauseStarted", "Paused", "DriftCorrected", "ResumeStarted", "Resumed"}
_PATCH: Final = ("patch", "llmservice", NAME, "--type", "merge", "-p")


@dataclass
class Story:
    """The steps, in their order, and what was measured on the way."""

    stage: Stage
    screen: Screen
    kubectl: Kubectl
    figures: list[tuple[str, str]] = field(default_factory=list)

    def tell(self) -> None:
        """Tells all of it. Raises DemoError, ClusterError or EngineNotReadyError where something does not come true."""
        newcomer = self._declare()
        busy = self._pause()
        self._look()
        self._new_pod(newcomer)
        self._stray_resume(self.stage.members[1])
        self._resume(busy)
        self._events()
        self._numbers()

    # The steps

    def _declare(self) -> Member:
        self.screen.step(1, f"A fleet of {len(self.stage.members)} {self.stage.engines.what} is declared")
        text = manifest(self.stage.members[0].engine.port)
        (self.stage.folder / f"{NAME}.yaml").write_text(text)
        self.screen.command(f"cat {NAME}.yaml")
        self.screen.answer(text)
        self.kubectl("apply", "-f", f"{NAME}.yaml")
        self.kubectl("wait", f"llmservice/{NAME}", "--for=condition=Ready", f"--timeout={DEADLINE_SECONDS:g}s")
        self.kubectl("get", "llmservices")
        self._all_say("running")
        self.screen.snapshot()
        return member(len(self.stage.members), self.stage.engines.begin_newcomer())

    def _pause(self) -> Member:
        self.screen.step(2, "One patch pauses them all, while one of them is answering a request")
        busy = self.stage.members[0]
        busy.request = OpenRequest(busy.engine, self.stage.engines.tokens)
        request = busy.request
        self._until("the request being answered", lambda: request.received > 0 or request.outcome is not None)
        self._switch("paused", "--for=condition=Paused")
        self._all_say("paused")
        before = request.received
        time.sleep(_STILL_SECONDS)
        if request.outcome is not None:
            self.screen.say(f"The request to {busy.pod.name} had ended before the pause: {request.outcome}.")
        elif request.received != before:
            raise DemoError(f"{busy.pod.name} says that it is paused and goes on answering.")
        else:
            self.screen.true(f"The request to {busy.pod.name} is frozen: still open, and no token comes")
        self.screen.snapshot()
        return busy

    def _look(self) -> None:
        self.screen.step(3, "The status is what was read back from the engines")
        self.kubectl("get", "llmservices", "-o", "wide")

    def _new_pod(self, newcomer: Member) -> None:
        self.screen.step(4, "A new pod appears and is paused on sight")
        engine, cluster = newcomer.engine, self.stage.cluster
        cluster.create_pod(NAMESPACE, newcomer.pod)
        self.stage.members.append(newcomer)
        name = newcomer.pod.name
        at_once = self.stage.engines.start_at_once
        with Recorder(lambda: self.stage.reader.says(engine), every=0.005 if at_once else 0.02) as said:
            placed = time.monotonic()
            cluster.set_pod_status(NAMESPACE, newcomer.pod.ip(engine.host))
            if not at_once:
                self._show_starting(name)
            self.stage.engines.finish_newcomer()
            cluster.set_pod_status(NAMESPACE, newcomer.pod.ready())
            answered = said.first(f"an answer of {name}", lambda word: word != "no answer", within=DEADLINE_SECONDS)
            paused = said.first(f"{name} being paused", lambda word: word == "paused", within=DEADLINE_SECONDS)
        began, since = placed, "its address"
        if answered.after > placed:
            began, since = answered.after, "ready to answer"
        taken = _milliseconds(paused.before - began)
        self.screen.true(f"{name} at {engine.address} was paused {taken} after it got {since}")
        self.figures.append((f"a new pod: paused, after it got {since}", taken))
        newcomer.request = OpenRequest(engine, self.stage.engines.tokens)
        self.kubectl("wait", f"llmservice/{NAME}", "--for=condition=Paused", f"--timeout={DEADLINE_SECONDS:g}s")
        self.kubectl("get", "llmservices")
        self.screen.snapshot()

    def _stray_resume(self, victim: Member) -> None:
        self.screen.step(5, "Somebody resumes one engine by hand, past the operator")
        engine = victim.engine
        self.screen.command(f"curl -X POST {engine.url}/resume")
        self.stage.reader.resume(engine)
        began = time.monotonic()
        self.screen.say(f"It is noticed within resyncSeconds, which is {RESYNC_SECONDS} here.")
        self._until(f"{victim.pod.name} being paused again", lambda: self.stage.reader.says(engine) == "paused")
        taken = _milliseconds(time.monotonic() - began)
        self.screen.true(f"{victim.pod.name} is paused again, {taken} after it was resumed")
        self.figures.append((f"a stray resume: corrected (resyncSeconds {RESYNC_SECONDS})", taken))
        self.kubectl("wait", f"llmservice/{NAME}", "--for=condition=Paused", f"--timeout={DEADLINE_SECONDS:g}s")
        self.screen.snapshot()

    def _resume(self, busy: Member) -> None:
        self.screen.step(6, "One patch resumes them all, and what was frozen goes on")
        newcomer = self.stage.members[-1]
        waited = newcomer.request is not None and newcomer.request.received == 0
        self._switch("running", "--for=condition=Paused=False")
        self._all_say("running")
        for one in (busy, newcomer):
            self._finish(one)
        tokens = self.stage.engines.tokens
        self.screen.true(f"The request to {busy.pod.name} got all its {tokens} tokens")
        if waited:
            self.screen.true(f"The one that {newcomer.pod.name} got while paused had waited, and got its {tokens}")
        self.screen.snapshot()

    def _events(self) -> None:
        self.screen.step(7, "Every change left an Event")
        self._until(f"Events {', '.join(sorted(_EVENTS))}", lambda: self._event_reasons() >= _EVENTS)
        self.kubectl("events", "--for", f"llmservice/{NAME}")

    def _numbers(self) -> None:
        self.screen.step(8, "In numbers")
        calls = self.stage.engines.control_calls()
        if calls is not None:
            pauses, resumes = calls[0], calls[1] - 1
            count = len(self.stage.members)
            are_needed = (pauses, resumes) == (count + 1, count)
            figure = f"{pauses} pauses, {resumes} resumes{', none more than needed' if are_needed else ''}"
            self.figures.append((f"control calls of the operator to {count} engines", figure))
        width = max(len(name) for name, _ in self.figures)
        self.screen.answer("\n".join(f"   {name.ljust(width)}   {value}" for name, value in self.figures))

    # What the steps are made of

    def _switch(self, desired: str, condition: str) -> None:
        """Patches `spec.generation`, waits as documented, and measures how long the operator took."""
        with Recorder(self._progress) as progress:
            self.kubectl(*_PATCH, f'{{"spec":{{"generation":"{desired}"}}}}')
            self.kubectl("wait", f"llmservice/{NAME}", condition, f"--timeout={DEADLINE_SECONDS:g}s")
            goal = (desired, desired == "paused")
            asked = progress.first("the patch", lambda seen: seen[0] == desired, within=DEADLINE_SECONDS)
            done = progress.first(f"status.paused {goal[1]}", lambda seen: seen == goal, within=DEADLINE_SECONDS)
        taken = _milliseconds(done.before - asked.after)
        count = len(self.stage.members)
        self.screen.true(f"status.paused was {str(desired == 'paused').lower()} {taken} after the patch")
        self.figures.append((f"{count} engines: from the patch to all {desired}, confirmed", taken))

    def _show_starting(self, name: str) -> None:
        self._until(f"the status knowing {name}", lambda: self._total() == len(self.stage.members))
        self.screen.say(f"{name} has an address; its engine is still starting, for a minute, and holds nobody back.")
        self.screen.snapshot()

    def _total(self) -> int:
        status = self.stage.cluster.get_llmservice(NAMESPACE, NAME).get("status", {})
        return int(status.get("targets", {}).get("total", 0))

    def _finish(self, one: Member) -> None:
        """Waits for the end of its request. Raises DemoError where it did not get all its tokens."""
        request = one.request
        if request is None:
            raise AssertionError(f"{one.pod.name} was sent a request")
        self._until(f"the end of the request to {one.pod.name}", lambda: request.outcome is not None)
        if request.outcome != "complete":
            raise DemoError(f"The request to {one.pod.name} did not survive: {request.outcome}.")

    def _progress(self) -> tuple[str, bool | None]:
        """What is asked for, and what the status says, if it is about that."""
        service = self.stage.cluster.get_llmservice(NAMESPACE, NAME)
        status = service.get("status", {})
        is_current = status.get("observedGeneration") == service["metadata"]["generation"]
        return service["spec"]["generation"], status.get("paused") if is_current else None

    def _all_say(self, word: str) -> None:
        """Asks the engines themselves. Raises DemoError where one says something else than the status."""
        for one in self.stage.members:
            said = self.stage.reader.says(one.engine)
            if said != word:
                raise DemoError(f"The status says that all are {word}, but {one.pod.name} itself says: {said}.")
        self.screen.true(f"All {len(self.stage.members)} engines themselves say: {word}")

    def _event_reasons(self) -> set[str]:
        return {event["reason"] for event in self.stage.cluster.list_events(NAMESPACE, about=NAME)}

    def _until(self, what: str, is_true: Callable[[], bool], *, within: float = DEADLINE_SECONDS) -> None:
        """Waits until something is true. Raises DemoError where that takes too long, or the operator has ended."""
        deadline = time.monotonic() + within
        while not is_true():
            self.stage.operator.check()
            if time.monotonic() > deadline:
                raise DemoError(f"Waited {within:g} s in vain for {what}.")
            time.sleep(_POLL_SECONDS)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
