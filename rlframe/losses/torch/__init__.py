"""Losses in PyTorch."""
