"""``python -m llmservice.plugin``: the same as ``kubectl-llm``."""

from llmservice.plugin.app import app

app(prog_name="kubectl-llm")
