"""Learners beside the plan: a thread that learns from a queue, what loads its batches, and both in one process."""
