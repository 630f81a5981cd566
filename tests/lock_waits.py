"""The sessions that wait for a lock: with TEST_CITUS also those on a worker, for which the coordinator only waits."""

import os

ACTIVITY = "citus_stat_activity" if os.environ.get("TEST_CITUS") else "pg_stat_activity"
LOCK_WAITS = f"{ACTIVITY} WHERE datname = current_database() AND wait_event_type = 'Lock'"
