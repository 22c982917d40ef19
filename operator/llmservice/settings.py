"""What the operator can be told from outside, by flags or by environment variables named ``LLMSERVICE_*``."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from llmservice.logs import LogFormat


class OperatorSettings(BaseSettings):
    """Settings of ``llmservice operator``. Flags win over the environment, which wins over the defaults."""

    model_config = SettingsConfigDict(env_prefix="LLMSERVICE_", use_attribute_docstrings=True, frozen=True)

    log_format: LogFormat = LogFormat.TEXT
    """text or json."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe level that is logged."""
    metrics_address: str = Field(default="0.0.0.0:9090", pattern=r"^(\S+:\d+)?$")
    """host:port of Prometheus' /metrics; empty: none."""
    liveness_address: str = Field(default="0.0.0.0:8080", pattern=r"^(\S+:\d+)?$")
    """host:port of /healthz; empty: none."""
