"""Log lines for people (text) or for machines (JSON). Details go in ``extra``, and come out as key=value or as keys."""

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """How log lines are written to standard error."""

    TEXT = "text"
    JSON = "json"


class TextFormatter(logging.Formatter):
    """``2026-12-01T10:00:00.000Z INFO logger: Message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        details = "".join(f" {key}={_quoted(value)}" for key, value in _details(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}{details}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with ``time``, ``level``, ``logger``, ``message``, the details, and ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_details(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(log_format: LogFormat, level: str) -> None:
    """Send everything to standard error. Libraries speak from WARNING on, whatever ``level`` is."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("llmservice").setLevel(level)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it warns that its thread gets no signals


def _details(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and not any(char.isspace() or char in '"=' for char in text) else json.dumps(text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
