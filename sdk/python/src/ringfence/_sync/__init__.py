"""Written by generate.py."""
