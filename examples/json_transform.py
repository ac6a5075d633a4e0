"""Flattens nested orders into one record an item, and writes them to the output directory as JSON lines."""

import json

ORDERS = """
[
  {"id": 17, "customer": {"name": "Ana", "country": "PT"}, "items": [
     {"sku": "A-1", "count": 2, "cents": 1250}, {"sku": "B-9", "count": 1, "cents": 399}]},
  {"id": 18, "customer": {"name": "Bo", "country": "SE"}, "items": []},
  {"id": 19, "customer": {"name": "Chloé", "country": "FR"}, "items": [
     {"sku": "A-1", "count": 10, "cents": 1100}]}
]
"""


def flatten(orders):
    for order in orders:
        for item in order["items"]:
            yield {
                "order": order["id"],
                "customer": order["customer"]["name"],
                "sku": item["sku"],
                "total": item["count"] * item["cents"] / 100,
            }


records = list(flatten(json.loads(ORDERS)))
with open("/output/items.jsonl", "w", encoding="utf-8") as file:
    for record in records:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
print(json.dumps(records, indent=2, ensure_ascii=False))
