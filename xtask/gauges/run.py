"""Runs a program by the client that openapi-python-client made of the document."""

import os

from ringfence_client import AuthenticatedClient
from ringfence_client.api.default import run_post
from ringfence_client.models import ExecutionResult, RemoteRequest

client = AuthenticatedClient(base_url=os.environ["URL"], token=os.environ["KEY"])
answer = run_post.sync(client=client, body=RemoteRequest(code="print(6 * 7)"))
if not isinstance(answer, ExecutionResult) or answer.stdout != "42\n" or answer.exit_code != 0:
    raise SystemExit(f"expected the output 42, got {answer}")
print(f"python client: {answer.stdout.strip()} from runtime {answer.meta.runtime}")
