"""Reads web server log lines with a regular expression and sums them up."""

import re
from collections import Counter

LOG = """\
203.0.113.7 - - [12/Mar/2026:06:25:01 +0000] "GET /index.html HTTP/1.1" 200 5124
203.0.113.7 - - [12/Mar/2026:06:25:02 +0000] "GET /style.css HTTP/1.1" 200 811
198.51.100.23 - - [12/Mar/2026:06:25:07 +0000] "POST /login HTTP/1.1" 401 96
198.51.100.23 - - [12/Mar/2026:06:25:08 +0000] "POST /login HTTP/1.1" 401 96
198.51.100.23 - - [12/Mar/2026:06:25:09 +0000] "POST /login HTTP/1.1" 401 96
192.0.2.44 - - [12/Mar/2026:06:26:30 +0000] "GET /report?id=7 HTTP/1.1" 500 0
192.0.2.44 - - [12/Mar/2026:06:26:31 +0000] "GET /report?id=7 HTTP/1.1" 200 20480
this line is broken
"""

LINE = re.compile(
    r'(?P<ip>\S+) \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<method>[A-Z]+) (?P<path>\S+) [^"]+" (?P<status>\d{3}) (?P<bytes>\d+)'
)

statuses, failures, sent, skipped = Counter(), Counter(), 0, 0
for line in LOG.splitlines():
    match = LINE.fullmatch(line)
    if match is None:
        skipped += 1
        continue
    statuses[match["status"]] += 1
    sent += int(match["bytes"])
    if match["status"] == "401":
        failures[match["ip"]] += 1

for status, count in sorted(statuses.items()):
    print(f"{status}: {count}")
print(f"bytes sent: {sent}")
print(f"lines not understood: {skipped}")
for address, count in failures.most_common():
    if count >= 3:
        print(f"many failed logins: {address} ({count})")
