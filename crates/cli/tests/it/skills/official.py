"""Calls example servers of the SDK."""
import inspect

weather = device.weather
found = weather.get_weather("Bern")
assert found["location"] == "Bern" and found["temperature"] == 22.5, found
assert weather.get_temperature("Bern", unit="fahrenheit") == 72.5
assert weather.get_weather_metrics(["a", "b"])["b"]["temperature"] == 22.0
assert [alert["severity"] for alert in weather.get_weather_alerts("california")] == ["high", "medium"]
assert weather.get_weather_alerts("nowhere") == []
assert str(inspect.signature(weather.get_temperature)) == "(city: str, *, unit: str = ...) -> float"
try:
    weather.get_weather(7)
except TypeError as error:
    assert "is not of type" in str(error), error
else:
    raise AssertionError("a number is no city")

names = device.tank.name_shrimp({"shrimp": [{"name": "ann"}, {"name": "bob"}]}, ["cy"])
assert names == ["ann", "bob", "cy"], names
try:
    device.tank.name_shrimp({"shrimp": [{"name": "far too long a name"}]}, [])
except TypeError as error:
    assert "is longer than 10 characters" in str(error), error
else:
    raise AssertionError("the name is too long")

assert device.greet.greet_user("Ada", title="Dr") == "Hello Dr Ada!"
assert "name: The name of the person to greet" in device.greet.greet_user.__doc__, device.greet.greet_user.__doc__
assert "Hello" in device.direct.hello()
print("done")
