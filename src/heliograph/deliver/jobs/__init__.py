"""What the service does by itself, again and again: a file for each duty with logic. `app.py` has the table."""
