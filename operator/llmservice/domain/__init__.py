"""Deciding and confirming fleet state: pure functions of frozen values, without I/O, clocks or libraries that have them.

Read in this order: :mod:`fleet` (the values), :mod:`policy` (what is wanted), :mod:`step` (what to do next with one
target), :mod:`observe` (what an answer teaches), :mod:`report` (what counts for the fleet), :mod:`status` (what is published).
"""
