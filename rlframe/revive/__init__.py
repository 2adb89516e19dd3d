"""Decisions from logs alone: an environment learned along a graph that the user draws, and a policy trained in it.

`graph` and `columns` are what the user says of the data, `data` the data, `functions` the user's own code.
"""
