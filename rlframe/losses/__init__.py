"""What algorithms minimise, as functions of tensors of either framework, each written once."""
