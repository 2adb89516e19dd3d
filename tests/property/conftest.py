"""Property tests judge answers, not how busy the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("rlframe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rlframe")
