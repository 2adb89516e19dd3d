"""Losses in TensorFlow."""
