"""A small SQLite database in the working directory, and a query with a window function."""

import sqlite3

connection = sqlite3.connect("library.db")
connection.executescript("""
    CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, author TEXT, year INTEGER);
    CREATE TABLE loan (book_id INTEGER REFERENCES book(id), member TEXT, days INTEGER);
""")
with connection:
    connection.executemany(
        "INSERT INTO book (title, author, year) VALUES (?, ?, ?)",
        [
            ("Middlemarch", "George Eliot", 1871),
            ("Silas Marner", "George Eliot", 1861),
            ("Persuasion", "Jane Austen", 1817),
            ("Emma", "Jane Austen", 1815),
            ("Villette", "Charlotte Brontë", 1853),
        ],
    )
    connection.executemany(
        "INSERT INTO loan VALUES (?, ?, ?)",
        [(1, "ana", 21), (1, "ben", 30), (2, "ana", 9), (3, "cy", 14), (4, "ben", 12), (4, "cy", 7), (4, "ana", 3)],
    )

QUERY = """
    SELECT author, title, count(loan.book_id) AS loans, coalesce(sum(days), 0) AS days,
           rank() OVER (PARTITION BY author ORDER BY count(loan.book_id) DESC) AS place
    FROM book LEFT JOIN loan ON loan.book_id = book.id
    GROUP BY book.id ORDER BY author, place
"""
for author, title, loans, days, place in connection.execute(QUERY):
    print(f"{author:<18} {place}. {title:<14} {loans} loans, {days} days")
print("integrity:", connection.execute("PRAGMA integrity_check").fetchone()[0])
