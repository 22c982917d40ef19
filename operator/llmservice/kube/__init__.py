"""Talking to the API server: lists, watches, status writes, events. Raw JSON both ways; nothing here decides anything."""
