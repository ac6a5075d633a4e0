"""The weather, from a server that the manifest names."""
import json
import urllib.parse
import urllib.request

SERVER = "http://127.0.0.1:8008"


class Weather:
    """Tells the weather."""

    def at(self, city: str) -> dict[str, float]:
        """Temperature in degrees Celsius, and wind in metres a second."""
        # The proxy that leads to the hosts of the manifest is found in the environment.
        address = f"{SERVER}/weather?{urllib.parse.urlencode({'city': city})}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise LookupError(f"no weather for {city} ({error.code})") from None
