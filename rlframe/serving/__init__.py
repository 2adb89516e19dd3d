"""Simulators in other programs: they ask a trainer for actions over HTTP, and it learns from what they tell."""
