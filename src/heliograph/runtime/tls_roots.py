"""The trusted root certificates of the system, loaded once."""

import ssl
from functools import lru_cache


@lru_cache(maxsize=1)
def system_roots() -> ssl.SSLContext:
    """Return what trusts the system's certificates: 50 ms and 1 MB for the first who needs it, shared by all."""
    return ssl.create_default_context()
