"""Answers each line of standard input with the milliseconds that Monty took for it."""
import sys
from time import perf_counter

from pydantic_monty import CollectString, Monty

with Monty() as pool, pool.checkout() as session:
    session.feed_run("x = 20")
    for line in sys.stdin:
        since = perf_counter()
        if line == "run\n":
            printed = CollectString()
            with pool.checkout() as fresh:
                fresh.feed_run("print(1)", print_callback=printed)
            right = printed.output == "1\n"
        else:
            right = session.feed_run("x += 1; x") > 20
        taken = perf_counter() - since
        assert right
        print(taken * 1000, flush=True)
