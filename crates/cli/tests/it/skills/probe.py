"""Skills that the tests call."""
import asyncio
import enum
import os
import time
import typing

COUNT = 0


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Probe:
    """What is asked of it, it does."""

    def echo(self, value: typing.Any) -> typing.Any:
        """Gives back what it is given."""
        return value

    def add(self, a: int, b: int = 1, *, minus: bool = False) -> int:
        """Adds two numbers.

        Or subtracts them.
        """
        return a - b if minus else a + b

    def paint(self, colour: Colour, coats: typing.Literal[1, 2] = 1) -> list[Colour]:
        """Paints."""
        assert isinstance(colour, Colour)
        return [colour] * coats

    def count(self) -> int:
        """How often it was called since its process began."""
        global COUNT
        COUNT += 1
        return COUNT

    def fail(self) -> None:
        """Fails, and says where it lives."""
        open("/home/ann/secret/notes.db")

    def lie(self) -> int:
        """Gives a text, and promises a number."""
        return "seven"

    def much(self, size: int) -> str:
        """Gives so much."""
        return "x" * size

    def odd(self) -> typing.Any:
        """Gives what JSON cannot carry."""
        return object()

    def die(self) -> None:
        """Ends its process."""
        os._exit(7)

    def hang(self) -> None:
        """Never ends."""
        while True:
            time.sleep(1)

    def look(self) -> str:
        """Tries to look at this machine, and to reach others."""
        found = []
        for path in ("/etc/shadow", "/home", "/root", "/var/run/docker.sock", "/skills"):
            try:
                os.stat(path)
                found.append(path)
            except OSError:
                pass
        import socket

        try:
            socket.create_connection(("127.0.0.1", 9), 1)
        except OSError as error:
            found.append(type(error).__name__)
        return " ".join(found)

    def _private(self):
        return "private"

    def any_number(self, *values):
        return values


class Pace:
    """Waits."""

    async def nap(self, seconds: float) -> float:
        """Sleeps for so long."""
        await asyncio.sleep(seconds)
        return seconds


def helper():
    return "no skill"
