"""SQLite and PostgreSQL behind one seam: `store.py` says what can be asked, the rest how it is kept."""
