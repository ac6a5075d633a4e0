"""Makes the database of the skill Shop: `python3 examples/skills/_make_shop.py`."""
import pathlib
import sqlite3

directory = pathlib.Path(__file__).parent / "shop"
directory.mkdir(exist_ok=True)
(directory / "shop.db").unlink(missing_ok=True)
connection = sqlite3.connect(directory / "shop.db")
connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, city TEXT, cents INTEGER)")
orders = [("Bern", 1250), ("Oslo", 800), ("Bern", 4000), ("Lima", 100), ("Oslo", 2200)]
connection.executemany("INSERT INTO orders (city, cents) VALUES (?, ?)", orders)
connection.commit()
connection.close()
