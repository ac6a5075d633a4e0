"""Questions to one SQLite file, which is mounted read-only."""
import sqlite3


class Shop:
    """Answers questions of the shop's database, and changes nothing."""

    MAX_ROWS = 500
    # A step is a thousand instructions of SQLite's: a query that goes through millions of rows is broken off.
    MAX_STEPS = 2_000

    def __init__(self):
        self.connection = sqlite3.connect("file:/shop/shop.db?mode=ro", uri=True)
        self.connection.execute("PRAGMA query_only = ON")
        self.connection.row_factory = sqlite3.Row

    def tables(self) -> dict[str, list[str]]:
        """The tables, each with its columns."""
        names = [row[0] for row in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = "SELECT name FROM pragma_table_info(?)"
        return {name: [row[0] for row in self.connection.execute(columns, (name,))] for name in names}

    def query(self, sql: str, values: list = [], *, limit: int = 100) -> list[dict]:
        """The rows that one SELECT gives, at most `limit` of them (500 is the most). `values` stand for its `?`."""
        steps = iter(range(self.MAX_STEPS))
        self.connection.set_progress_handler(lambda: next(steps, None) is None, 1000)
        rows = self.connection.execute(sql, values)
        return [dict(row) for row in rows.fetchmany(max(0, min(limit, self.MAX_ROWS)))]
