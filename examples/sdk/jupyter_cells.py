"""Runs cells in a kernel of the server, with a client of Jupyter servers: `pip install jupyter_kernel_client`, then
`RINGFENCE_API_KEY=KEY python jupyter_cells.py http://127.0.0.1:8080/jupyter`, with the key of `ringfence keys create`.
"""

import os
import sys

from jupyter_kernel_client import JupyterKernelClient

# One pixel, as a library that draws makes it.
PICTURE = """
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\\0\\1\\2\\3")) + chunk(b"IEND", b"")
class Picture:
    def _repr_png_(self):
        return png
Picture()
"""


def main() -> int:
    # With `token`, the client would put the key into a URL, which the server refuses.
    headers = {"Authorization": "Bearer " + os.environ["RINGFENCE_API_KEY"]}
    with JupyterKernelClient(server_url=sys.argv[1], token=None, headers=headers) as kernel:
        kernel.execute("x = 20")
        print(kernel.execute("x + 22")["outputs"][0]["data"]["text/plain"])
        outputs = kernel.execute(PICTURE)["outputs"]
        print(*(media for each in outputs for media in each["data"] if media.startswith("image/")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
