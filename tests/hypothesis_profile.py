"""The hypothesis profile for all test runs: examples have no deadline, because the machine may be slow.

`conftest.py` imports it, and so do the packages whose tests `make test-rules` runs without any conftest.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
