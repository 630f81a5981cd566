"""Public name of an instance: a hash, because the instance id itself would allow taking over claims."""

import hashlib


def public_instance_name(instance: str) -> str:
    return hashlib.sha256(f"heliograph/instance/{instance}".encode()).hexdigest()[:16]
