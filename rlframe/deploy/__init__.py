"""Trained policies where they are used: on clusters of Ray."""
