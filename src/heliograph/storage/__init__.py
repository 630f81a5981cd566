"""Storage on SQLite and PostgreSQL: `store.py` is the interface, the other modules implement its parts."""
