"""The package's code. `generate.py` writes `_sync` from it: change this, never that."""
