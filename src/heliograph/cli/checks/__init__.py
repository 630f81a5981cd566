"""What `doctor` and `preflight` look at: `table.py` lists all of it."""
