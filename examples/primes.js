// A sieve, a generator, a promise and big integers.
function* primes(limit) {
  const composite = new Uint8Array(limit + 1);
  for (let n = 2; n <= limit; n += 1) {
    if (composite[n]) continue;
    yield n;
    for (let multiple = n * n; multiple <= limit; multiple += n) composite[multiple] = 1;
  }
}

async function main() {
  const found = [...primes(100_000)];
  console.log(`primes below 100000: ${found.length}`);
  console.log(`last five: ${found.slice(-5).join(" ")}`);
  const product = found.slice(0, 15).reduce((total, prime) => total * BigInt(prime), 1n);
  console.log(`product of the first fifteen: ${product}`);
  await new Promise((resolve) => setTimeout(resolve, 1));
  const gaps = found.slice(1).map((prime, index) => prime - found[index]);
  console.log(`widest gap: ${Math.max(...gaps)}`);
}

main();
