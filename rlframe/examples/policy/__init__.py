"""Policies that need no learning."""
