"""One version of an LLMService, with who set what in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmservice.api import VERIFY_ANNOTATION, Condition, ConditionType, LLMService


@dataclass(frozen=True)
class Snapshot:
    """An LLMService as it was stored at one moment. ``raw`` is the API server's JSON."""

    raw: Mapping[str, Any]

    @cached_property
    def service(self) -> LLMService:
        """The object, typed."""
        return LLMService.model_validate(self.raw)

    @property
    def fleet(self) -> str:
        """``namespace/name``."""
        return self.service.key

    @property
    def object_generation(self) -> int:
        """``metadata.generation``: counts the changes of the spec."""
        return self.service.metadata.object_generation

    @property
    def verify_token(self) -> str | None:
        """The last fresh read that anybody asked for."""
        return self.service.metadata.annotations.get(VERIFY_ANNOTATION)

    @property
    def is_current(self) -> bool:
        """Whether the status is about the spec that stands beside it."""
        return self.service.status.observed_generation == self.object_generation

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, if it is there and about the spec that stands beside it."""
        for each in self.service.status.conditions:
            if each.type == kind and each.observed_generation == self.object_generation:
                return each
        return None

    def setters(self, *path: str) -> frozenset[str]:
        """The field managers that own a field: whoever gave it its present value last, and appliers who want the same.

        ``setters("spec", "generation")``. Empty where nobody owns it, or where the API server keeps no record.
        """
        return frozenset(
            str(entry.get("manager", ""))
            for entry in self.raw["metadata"].get("managedFields") or ()
            if "subresource" not in entry and _owns(entry.get("fieldsV1") or {}, path)
        )


def _owns(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    for name in path:
        if f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True
