"""Models of the kinds that courses and papers start from; `torch_models` and `tf_models` have the same ones."""
