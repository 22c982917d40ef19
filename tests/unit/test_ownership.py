"""R12: which pods are selected, and which LLMService owns one that several select."""

from collections.abc import Mapping
from typing import Any

import pytest

from llmservice.api import LabelSelector, LLMService
from llmservice.domain import ownership
from llmservice_testing.builders import make_llmservice
from llmservice_testing.domain import make_service

A_DAY_EARLIER = "2026-11-30T10:00:00Z"
A_SECOND_EARLIER = "2026-12-01T09:59:59Z"


def selector(**parts: Any) -> LabelSelector:
    return LabelSelector.model_validate(parts)


def expression(operator: str, *values: str) -> LabelSelector:
    requirement: dict[str, object] = {"key": "tier", "operator": operator}
    if values:
        requirement["values"] = list(values)
    return selector(matchExpressions=[requirement])


@pytest.mark.parametrize(
    ("chosen", "labels", "selected"),
    [
        pytest.param(
            selector(matchLabels={"app": "qwen"}), {"app": "qwen", "x": "y"}, True, id="further labels are no matter"
        ),
        pytest.param(selector(matchLabels={"app": "qwen"}), {"app": "llama"}, False, id="another value"),
        pytest.param(selector(matchLabels={"app": "qwen"}), {}, False, id="no such label"),
        pytest.param(selector(matchLabels={"app": ""}), {}, False, id="an empty value is not a missing label"),
        pytest.param(selector(matchLabels={"app": ""}), {"app": ""}, True, id="an empty value"),
        pytest.param(selector(matchLabels={"a": "1", "b": "2"}), {"a": "1"}, False, id="all labels must match"),
        pytest.param(expression("In", "x", "y"), {"tier": "y"}, True, id="In: one of them"),
        pytest.param(expression("In", "x", "y"), {"tier": "z"}, False, id="In: none of them"),
        pytest.param(expression("In", "x"), {}, False, id="In: no such label"),
        pytest.param(expression("NotIn", "x"), {"tier": "x"}, False, id="NotIn: one of them"),
        pytest.param(expression("NotIn", "x"), {"tier": "y"}, True, id="NotIn: none of them"),
        pytest.param(expression("NotIn", "x"), {}, True, id="NotIn: a missing label satisfies it"),
        pytest.param(expression("Exists"), {"tier": ""}, True, id="Exists"),
        pytest.param(expression("Exists"), {}, False, id="Exists: no such label"),
        pytest.param(expression("DoesNotExist"), {}, True, id="DoesNotExist"),
        pytest.param(expression("DoesNotExist"), {"tier": ""}, False, id="DoesNotExist: it does"),
        pytest.param(
            selector(matchLabels={"app": "qwen"}, matchExpressions=[{"key": "tier", "operator": "Exists"}]),
            {"app": "qwen"},
            False,
            id="all parts must match",
        ),
    ],
)
def test_a_pod_is_selected_by_the_rules_of_kubernetes(
    chosen: LabelSelector, labels: Mapping[str, str], selected: bool
) -> None:
    assert ownership.selects(chosen, labels) is selected


@pytest.mark.parametrize(
    ("chosen", "query"),
    [
        (selector(matchLabels={"app": "qwen", "llmservice.io/part": ""}), "app=qwen,llmservice.io/part="),
        (expression("In", "x", "y"), "tier in (x,y)"),
        (expression("NotIn", "x"), "tier notin (x)"),
        (expression("Exists"), "tier"),
        (expression("DoesNotExist"), "!tier"),
        (
            selector(matchLabels={"app": "qwen"}, matchExpressions=[{"key": "tier", "operator": "Exists"}]),
            "app=qwen,tier",
        ),
    ],
)
def test_a_selector_is_written_as_the_api_server_takes_it(chosen: LabelSelector, query: str) -> None:
    assert ownership.to_query(chosen) == query


def service(name: str, **how: Any) -> LLMService:
    return make_service(make_llmservice(name).selector(app=how.pop("app", "qwen")), uid=f"uid-{name}", **how)


def test_r12_the_oldest_goes_first_and_the_uid_decides_between_equals() -> None:
    mine = service("m")
    others = [
        service("b"),
        service("z", created=A_SECOND_EARLIER),
        service("n"),
        service("y", created=A_DAY_EARLIER),
        service("elsewhere", created=A_DAY_EARLIER, namespace="other"),
        mine,
    ]
    older = ownership.older_claims(mine, others)
    assert [claim.metadata.name for claim in older] == ["y", "z", "b"]


def test_r12_every_operator_finds_the_same_owner_in_whatever_order_it_sees_them() -> None:
    services = [service("a"), service("b", created=A_DAY_EARLIER), service("c")]
    for own in services:
        for order in (services, services[::-1]):
            first = ownership.owner_among([*ownership.older_claims(own, order), own], {"app": "qwen"})
            assert first is not None
            assert first.metadata.name == "b"


def test_r12_an_older_one_owns_only_what_it_selects() -> None:
    older = ownership.older_claims(service("m"), [service("llama", app="llama", created=A_DAY_EARLIER)])
    assert ownership.owner_among(older, {"app": "qwen"}) is None
    assert ownership.owner_among(older, {"app": "llama"}) is not None


def test_r12_nobody_goes_before_the_oldest() -> None:
    assert ownership.older_claims(service("a", created=A_DAY_EARLIER), [service("b"), service("c")]) == ()
