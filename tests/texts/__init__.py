from tests import hypothesis_profile  # noqa: F401  these tests also run without a conftest
