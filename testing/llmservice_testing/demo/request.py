"""One request for tokens, open while other things happen."""

import json
import threading
from typing import Final

import httpx

from llmservice_testing.demo.engines import Engine
from llmservice_testing.vllm.model import SERVED_NAME

_READ_SECONDS: Final = 600.0
"""Between two tokens; the engine is paused in between."""


class OpenRequest:
    """A streamed completion, read by a thread of its own. It ends by itself, with the engine at the latest."""

    def __init__(self, engine: Engine, tokens: int) -> None:
        """Sends the request for exactly so many tokens, and returns at once."""
        self.tokens = tokens
        self._engine = engine
        self._received = 0
        self._outcome: str | None = None
        threading.Thread(target=self._run, name=f"request to {engine.address}", daemon=True).start()

    @property
    def received(self) -> int:
        """How many parts of the answer have arrived; with real engines a part is a token."""
        return self._received

    @property
    def outcome(self) -> str | None:
        """None while it is open, `complete` if it got all its tokens, or what went wrong."""
        return self._outcome

    def _run(self) -> None:
        try:
            self._outcome = self._read()
        except (httpx.HTTPError, ValueError) as error:
            self._outcome = f"{type(error).__name__}: {error}"

    def _read(self) -> str:
        body = {"model": SERVED_NAME, "prompt": "x", "max_tokens": self.tokens, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        timeout = httpx.Timeout(5, read=_READ_SECONDS)
        reason, made = "", 0
        with httpx.stream(
            "POST", f"{self._engine.url}/v1/completions", json=body, timeout=timeout, trust_env=False
        ) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                for choice in event["choices"]:
                    self._received += 1
                    reason = choice.get("finish_reason") or reason
                made = (event.get("usage") or {}).get("completion_tokens", made)
        return "complete" if (reason, made) == ("length", self.tokens) else f"ended by {reason!r} after {made} tokens"
