"""Calls the SDK's server that does everything, whichever way it is reached."""
import asyncio

every = device.everything
assert every.test_simple_text() == "This is a simple text response for testing."
image = every.test_image_content()
assert image["type"] == "image" and image["mimeType"] == "image/png" and image["data"].startswith("iVBOR"), image
assert every.test_audio_content()["mimeType"] == "audio/wav"
embedded = every.test_embedded_resource()
assert (embedded["type"], embedded["text"]) == ("resource", "This is an embedded resource content."), embedded
several = every.test_multiple_content_types()
assert several[0] == "Multiple content types test:" and several[2]["uri"] == "test://mixed-content-resource", several
assert every.test_tool_with_logging() == "Tool with logging executed successfully"
assert every.test_tool_with_progress() == "0"
assert every.test_x_mcp_header(region="here") == "region=here"

# What a server would have us do is not offered, and it is told so.
assert "not offered" in every.test_sampling("hello"), every.test_sampling("hello")
assert "not offered" in every.test_elicitation("hello"), every.test_elicitation("hello")

for call, told in ((every.test_error_handling, "intentionally returns an error"), (every.test_missing_capability, "sampling")):
    try:
        call()
    except RuntimeError as error:
        assert told in str(error), error
    else:
        raise AssertionError("it raised nothing")


async def many():
    return await asyncio.gather(*[every.test_x_mcp_header.aio(region=str(number)) for number in range(30)])


assert asyncio.run(many()) == [f"region={number}" for number in range(30)]
assert device.search_skills("audio")[0]["path"] == "everything.test_audio_content"
print("done")
