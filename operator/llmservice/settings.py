"""What the operator can be told from outside, by flags or by environment variables named ``LLMSERVICE_*``."""

from typing import Annotated, Literal

from pydantic import AfterValidator
from pydantic_settings import BaseSettings, SettingsConfigDict

from llmservice.logs import LogFormat


def _is_address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    is_host = not any(char.isspace() or char == "/" for char in host)
    if value and not (colon and is_host and port.isdecimal() and int(port) < 65536):
        raise ValueError("must be host:port or :port with a port up to 65535, or empty for none")
    return value


Address = Annotated[str, AfterValidator(_is_address)]


class OperatorSettings(BaseSettings):
    """Settings of ``llmservice operator``. Flags win over the environment, which wins over the defaults."""

    model_config = SettingsConfigDict(env_prefix="LLMSERVICE_", use_attribute_docstrings=True, frozen=True)

    log_format: LogFormat = LogFormat.TEXT
    """text or json."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe level that is logged."""
    metrics_address: Address = ":9090"
    """host:port of Prometheus' /metrics; without a host on every address, IPv4 and IPv6; empty: none."""
    health_address: Address = ":8080"
    """host:port of /healthz and /readyz; without a host on every address; empty: none."""
