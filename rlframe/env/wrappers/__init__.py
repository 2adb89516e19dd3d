"""Wrappers around environments."""
