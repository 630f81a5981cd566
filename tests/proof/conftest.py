"""Proofs that have no short form are left to `make proof`."""

from tests.proof.size import FULL

LONG = {
    "test_citus.py": "builds Citus, and three servers of its own",
    "test_containers.py": "needs an engine of containers",
    "test_failover.py": "ten minutes, and a cluster",
    "test_hostile.py": "what it asserts, it asserts in full",
    "test_image.py": "needs a builder of images",
    "test_install.py": "installs all dependencies anew",
    "test_memory.py": "needs a control group of its own",
    "test_pitr.py": "two servers of its own",
    "test_pumping.py": "fifty thousand verifications",
    "test_switchovers.py": "ten minutes, and leases of two minutes",
    "test_ten_million.py": "an hour, and 50 GB",
    "test_upgrade.py": "a minute of starting processes",
}

collect_ignore = [] if FULL else list(LONG)
