"""``kubectl llm``: pause and resume fleets, watch them, and find out why one is not as asked.

The same commands as ``llmservice pause`` and so on. Built on :mod:`llmservice.client`; needs neither kopf nor the operator's
code, and imports what is slow to import only when a command needs it.
"""
