"""A whole fleet is paused and resumed: by the operator, and by everything that people use instead, in turns.

All of them work on the same engines. The operator is measured on every change of its spec; in between the others undo and
redo what it did, so that it finds all as it left it (and as it reads nothing meanwhile, it does not interfere).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Protocol

from bench.by_hand import ByHand
from bench.declared import Declared
from bench.engines import SimulatedEngines
from bench.figures import Action, Sample, Timings
from bench.progress import say
from bench.shell import Shell, ShellError
from bench.subject import Subject
from bench.trainer import Trainer, TrainerMissingError, training


class Contender(Protocol):
    """Something that pauses and resumes a fleet."""

    @property
    def name(self) -> str: ...

    @property
    def note(self) -> str: ...

    def measure(self, action: Action) -> Sample:
        """Do it, and return once it is done."""


@dataclass(frozen=True)
class Phases:
    """Where the operator's time goes, in seconds of each measurement, as the engines saw it."""

    noticing: list[float] = field(default_factory=list)
    """From the PATCH being sent to the first read that an engine gets: API server, watch, kopf, and preparing all calls."""
    calling: list[float] = field(default_factory=list)
    """From there to the last answer of an engine."""
    reporting: list[float] = field(default_factory=list)
    """From there to the status being seen: decision, writes, watch."""

    def add(self, sample: Sample, first: float, last: float) -> None:
        if sample.began_at is None:
            raise ValueError("the beginning was not kept")
        self.noticing.append(first - sample.began_at)
        self.calling.append(last - first)
        self.reporting.append(sample.began_at + sample.wall - last)


@dataclass(frozen=True)
class FanOut:
    """What it took on a fleet of one size."""

    size: int
    operator: Timings
    by_hand: Timings
    trainer: Timings
    shell: Timings
    phases: Phases
    """Of the operator's pauses and resumes."""

    @property
    def all(self) -> tuple[Timings, ...]:
        return (self.operator, self.by_hand, self.trainer, self.shell)


def measure(subject: Subject, engines: SimulatedEngines, rounds: int) -> FanOut:
    """A round is a pause and a resume by each."""
    operator, by_hand = Declared(subject), ByHand(engines.urls)
    with contextlib.ExitStack() as stack:
        trainer, no_trainer = _trainer(stack, subject, engines)
        shell, no_shell = _shell(subject)
        others = [each for each in (by_hand, trainer, shell) if each is not None]
        course = _Course(engines, {each.name: Timings(each.name, each.note) for each in (operator, *others)})
        for number in range(1, rounds + 1):
            say(f"{len(engines.urls)} engines, round {number} of {rounds}")
            course.run_operator(operator, "pause")
            course.run(by_hand, "resume", "pause")
            course.run_operator(operator, "resume")
            course.run(by_hand, "pause", "resume")
            for each in (trainer, shell):
                if each is not None:
                    _run_if_it_works(course, each, by_hand)
    done = course.timings
    return FanOut(
        size=len(engines.urls),
        operator=done[operator.name],
        by_hand=done[by_hand.name],
        trainer=done.get(Trainer.name) or Timings(Trainer.name, no_trainer),
        shell=done.get(Shell.name) or Timings(Shell.name, no_shell),
        phases=course.phases,
    )


@dataclass(frozen=True)
class _Course:
    engines: SimulatedEngines
    timings: dict[str, Timings]
    phases: Phases = field(default_factory=Phases)

    def run_operator(self, operator: Contender, action: Action) -> None:
        """As `run`, and look at what the engines recorded meanwhile."""
        self.engines.forget_calls()
        self.run(operator, action)
        self.phases.add(self.timings[operator.name].samples[action][-1], *self.engines.first_and_last_call())

    def run(self, contender: Contender, *actions: Action) -> None:
        """Measure it, and look whether it did what it says."""
        for action in actions:
            sample = contender.measure(action)
            done, size = self.engines.number_in_state_after(action), len(self.engines.urls)
            if done != size:
                raise RuntimeError(f"{contender.name}: after {action} only {done} of {size} engines were so")
            self.timings[contender.name].add(action, sample)


def _run_if_it_works(course: _Course, contender: Trainer | Shell, by_hand: ByHand) -> None:
    """One that fails says so in its note, and costs nobody else the run: the engines are brought to where they were."""
    try:
        course.run(contender, "pause", "resume")
    except (TrainerMissingError, ShellError) as error:
        course.timings[contender.name].note = f"failed: {error}"
        by_hand.measure("resume")


def _trainer(stack: contextlib.ExitStack, subject: Subject, engines: SimulatedEngines) -> tuple[Trainer | None, str]:
    try:
        return stack.enter_context(training(engines.urls, subject.stage.folder / "trainer.log")), ""
    except TrainerMissingError as error:
        return None, str(error)


def _shell(subject: Subject) -> tuple[Shell | None, str]:
    try:
        return Shell(subject.stage.plane.kubeconfig, subject.namespace), ""
    except ShellError as error:
        return None, str(error)
