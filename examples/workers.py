"""Counts primes in parallel processes, well within the limit on processes."""

from multiprocessing import Pool


def count_primes(bounds):
    low, high = bounds
    return sum(1 for n in range(max(low, 2), high) if all(n % d for d in range(2, int(n**0.5) + 1)))


if __name__ == "__main__":
    parts = [(start, start + 5_000) for start in range(0, 20_000, 5_000)]
    with Pool(processes=2) as pool:
        counts = pool.map(count_primes, parts)
    for (low, high), count in zip(parts, counts):
        print(f"{low:>6}..{high:<6} {count}")
    print("primes below 20000:", sum(counts))
