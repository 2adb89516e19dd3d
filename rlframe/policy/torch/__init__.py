"""Parts that PyTorch policies are composed of."""
