"""Public name of an instance: a hash of its id.

The id itself is secret: a process that uses it could take over the claimed work of the instance.
"""

import hashlib


def public_instance_name(instance: str) -> str:
    return hashlib.sha256(f"heliograph/instance/{instance}".encode()).hexdigest()[:16]
