"""Doing what the domain decides: one actor per LLMService, woken by changes of any kind and by time."""
