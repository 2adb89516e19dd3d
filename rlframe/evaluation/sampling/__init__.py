"""The sampling loops: environments are stepped, policies act, and rows become batches."""
