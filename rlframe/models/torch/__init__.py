"""PyTorch models and action distributions."""
