"""Periodic background jobs; `app.py` lists all of them."""
