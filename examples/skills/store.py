"""A small store of values by key, kept in one file."""
import json
import os

FILE = "/store/values.json"
MAX_KEYS = 1000
MAX_LENGTH = 10_000


class Store:
    """Keeps values by key from one program to the next."""

    def __init__(self):
        try:
            with open(FILE) as file:
                self.values = json.load(file)
        except FileNotFoundError:
            self.values = {}

    def get(self, key: str):
        """The value of a key; None if there is none."""
        return self.values.get(key)

    def put(self, key: str, value) -> None:
        """Keeps a value, in the place of the one that the key had."""
        if len(json.dumps([key, value])) > MAX_LENGTH:
            raise ValueError(f"a key with its value takes more than {MAX_LENGTH} characters")
        if key not in self.values and len(self.values) >= MAX_KEYS:
            raise ValueError(f"there are {MAX_KEYS} keys already")
        self._write({**self.values, key: value})

    def delete(self, key: str) -> bool:
        """Forgets a key; whether there was one."""
        known = key in self.values
        self._write({name: value for name, value in self.values.items() if name != key})
        return known

    def keys(self) -> list[str]:
        """All keys, in order."""
        return sorted(self.values)

    def _write(self, values):
        with open(FILE + ".new", "w") as file:
            json.dump(values, file)
        os.replace(FILE + ".new", FILE)
        self.values = values
