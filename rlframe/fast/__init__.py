"""Shortcuts that are there for speed alone: each has an off switch, a benchmark, and a test of its numbers."""
