"""The checks of `doctor` and `preflight`; `table.py` lists all of them."""
