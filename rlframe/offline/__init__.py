"""Datasets of experience: written while sampling, read for learning, judged without an environment."""
