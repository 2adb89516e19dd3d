"""A Ray runtime for tests."""


def runtime_of_tests():
    """Yields Ray with a runtime of four processors, and ends it: for fixtures."""
    import ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    yield ray
    ray.shutdown()
