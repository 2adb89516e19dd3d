"""What execution plans are made of: iterators, their nodes, sources on other processes, counters, the report."""
