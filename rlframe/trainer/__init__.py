"""`Trainer`, which trains any algorithm: construction, iterations, evaluation, checkpoints, logs, recovery."""
