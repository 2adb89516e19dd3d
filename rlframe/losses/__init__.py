"""What algorithms minimise, as functions of arrays: one module per framework, and a NumPy oracle to test them by."""
