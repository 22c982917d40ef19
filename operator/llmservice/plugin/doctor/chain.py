"""All checks, most telling first. One that explains others comes before them; none is left out because another found
something, as several things may be wrong at once."""

from collections.abc import Sequence

from llmservice.plugin.doctor import (
    checks_answers,
    checks_around,
    checks_operator,
    checks_pods,
    checks_reach,
    checks_services,
)
from llmservice.plugin.doctor.facts import Facts
from llmservice.plugin.doctor.finding import Check, Finding, Weight

CHECKS: Sequence[Check] = (
    checks_operator.definition_is_old,
    checks_operator.is_being_deleted,
    checks_operator.operator_is_silent,
    checks_operator.operator_is_alive,
    checks_operator.pods_are_claimed,
    checks_pods.no_pods,
    checks_pods.pods_do_not_run,
    checks_pods.operator_does_not_see_pods,
    checks_answers.control_routes_are_missing,
    checks_answers.port_is_missing,
    checks_reach.port_is_declared_by_nobody,
    checks_answers.key_is_demanded,
    checks_answers.mode_is_not_supported,
    checks_answers.engine_refuses,
    checks_answers.engines_are_asleep,
    checks_reach.engines_are_unreachable,
    checks_reach.certificates_are_missing,
    checks_answers.drain_is_under_way,
    checks_answers.engines_say_otherwise,
    checks_operator.pause_has_expired,
    checks_operator.deadline_is_over,
    checks_pods.gate_has_no_condition,
    checks_pods.gate_is_closed,
    checks_pods.probe_is_missing,
    checks_services.service_has_no_endpoints,
    checks_services.service_routes_to_paused_pods,
    checks_around.autoscaler_will_shrink_the_fleet,
    checks_around.budget_blocks_drains,
    checks_operator.nothing_is_asked,
    checks_operator.somebody_asked,
    checks_around.not_looked_at,
)
_ORDER = list(Weight)


def diagnose(facts: Facts) -> list[Finding]:
    """What all checks found: problems, then warnings, then notes."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: _ORDER.index(finding.weight))
