"""Compresses blocks in a pool of threads and checks every digest."""

import hashlib
import zlib
from concurrent.futures import ThreadPoolExecutor

BLOCKS = [bytes([seed]) * 50_000 + b"%d" % seed for seed in range(8)]


def squeeze(block):
    packed = zlib.compress(block, 9)
    assert zlib.decompress(packed) == block
    return len(packed) < len(block) // 100, hashlib.sha256(block).hexdigest()[:12]


with ThreadPoolExecutor(max_workers=4) as pool:
    results = list(pool.map(squeeze, BLOCKS))
for number, (small, digest) in enumerate(results):
    print(number, digest, "small" if small else "large")
