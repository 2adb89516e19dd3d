"""Policies over HTTP: simulators that a trainer learns from, and trained policies that act for other programs."""
