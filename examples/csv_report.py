"""A sales report from CSV text: totals by region, the best product, and a table."""

import csv
import io
from collections import defaultdict
from decimal import Decimal

SALES = """\
date,region,product,units,price
2026-01-05,North,kettle,12,24.90
2026-01-06,South,teapot,7,31.50
2026-01-09,North,teapot,3,31.50
2026-01-12,West,kettle,20,24.90
2026-01-15,South,cup,48,4.20
2026-02-02,West,cup,96,4.20
2026-02-03,North,cup,36,4.20
2026-02-10,South,kettle,9,24.90
2026-02-17,West,teapot,5,31.50
"""

by_region = defaultdict(Decimal)
by_product = defaultdict(Decimal)
for row in csv.DictReader(io.StringIO(SALES)):
    amount = int(row["units"]) * Decimal(row["price"])
    by_region[row["region"]] += amount
    by_product[row["product"]] += amount

total = sum(by_region.values())
print(f"{'region':<8}{'sales':>10}{'share':>8}")
for region, amount in sorted(by_region.items(), key=lambda item: -item[1]):
    print(f"{region:<8}{amount:>10.2f}{amount / total:>8.1%}")
print(f"{'total':<8}{total:>10.2f}")
best = max(by_product, key=by_product.get)
print(f"best product: {best} ({by_product[best]:.2f})")
