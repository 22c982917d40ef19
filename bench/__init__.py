"""How fast the operator is, always as a ratio to something else that was measured in the same run.

`python -m bench` runs everything and prints tables; docs/benchmarks.md says how to read them. A time is never asserted.
"""
