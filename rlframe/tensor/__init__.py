"""Functions of tensors that losses are written with, once for PyTorch and TensorFlow: see `rlframe.tensor.ops`."""
