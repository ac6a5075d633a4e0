from e2b import ALL_TRAFFIC, Sandbox, SandboxException

sandbox = Sandbox.create(network={"allow_out": ["HOST"], "deny_out": [ALL_TRAFFIC]})
fetch = "curl --silent --output /dev/null --write-out '%{http_code}' http://HOST/"


def answers(code):
    found = sandbox.commands.run(fetch).stdout
    assert found == code, found


answers("200")
sandbox.update_network({"deny_out": [ALL_TRAFFIC]})
answers("403")
assert not sandbox.get_info().allow_internet_access
try:
    sandbox.update_network({"allow_out": ["example.test"], "deny_out": [ALL_TRAFFIC]})
    raise AssertionError("a host is open that the operator has not opened")
except SandboxException as refused:
    assert "the host `example.test` in `network.allowOut`" in str(refused), refused
answers("403")
sandbox.update_network({"allow_out": ["HOST"], "deny_out": [ALL_TRAFFIC]})
answers("200")
assert sandbox.kill()
print("done")
