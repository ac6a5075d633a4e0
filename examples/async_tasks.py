"""A pipeline of asyncio tasks: a producer, three workers and a bounded queue."""

import asyncio
import socket


async def produce(queue, count):
    for number in range(1, count + 1):
        await queue.put(number)
    for _ in range(3):
        await queue.put(None)


async def work(queue, results):
    while (number := await queue.get()) is not None:
        await asyncio.sleep(0)
        results[number] = number * number


async def echo():
    """Talks to itself over a socket pair, as event loops do."""
    left, right = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=left)
    other_reader, other_writer = await asyncio.open_connection(sock=right)
    writer.write(b"ping\n")
    await writer.drain()
    line = await other_reader.readline()
    other_writer.close()
    writer.close()
    return line.decode().strip()


async def main():
    queue, results = asyncio.Queue(maxsize=4), {}
    workers = [work(queue, results) for _ in range(3)]
    await asyncio.wait_for(asyncio.gather(produce(queue, 12), *workers), timeout=10)
    print("squares:", [results[number] for number in sorted(results)])
    print("echo:", await echo())
    try:
        await asyncio.wait_for(asyncio.Event().wait(), timeout=0.01)
    except asyncio.TimeoutError:
        print("gave up waiting")


if __name__ == "__main__":
    asyncio.run(main())
