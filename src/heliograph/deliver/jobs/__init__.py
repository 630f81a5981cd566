"""Periodic background jobs, one module per job with logic. The job table is in `app.py`."""
