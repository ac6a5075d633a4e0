// Makes what workers start from: one file, of an index and what it tells of. This is put before worker.js.

const PAGE = 4096;
/** What programs commonly do: what that takes is looked through at each start. */
const COMMON = [
  "import collections, datetime, functools, itertools, json, math, random, re, string, textwrap, time",
  "print(json.dumps({'a': [1, 2.5, None, True, 'x']}, indent=1), json.loads('[1, 2.5, {\"a\": \"\\\\u00e4\"}]'))",
  "print(re.sub(r'(\\w+)@(\\w+)', r'\\2', 'a@b c@d'), math.sqrt(2) ** 0.5, 7 // 2, -7 % 3, 2 ** 100, round(2.567, 1))",
  "print(sorted({'b': 1, 'a': 2}.items(), key=lambda x: x[1]), {1, 2} & {2}, [*range(5)][::-1], 'a,b'.split(','))",
  "print(datetime.date(2024, 2, 29).isoformat(), collections.Counter('hello').most_common(2), f'{3.14159:.2f} {1000000:,}')",
  "open('/tmp/x', 'w').write('line\\n' * 3); print([line.strip() for line in open('/tmp/x')], 'ä'.encode(), b'x'.decode())",
  "x = [i * i for i in range(1000)]\nprint(sum(x), max(x), any(x), list(zip(x, x))[:2], dict(enumerate('ab')))",
  "import dataclasses, asyncio\n@dataclasses.dataclass\nclass P:\n  x: int\n  y: str = 'a'\nprint(P(1))\nasyncio.run(asyncio.sleep(0))",
  "def f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nprint(f(10))\ndef g():\n  yield from range(3)\nprint(list(g()), input())",
  "try:\n  {}['x']\nexcept KeyError as e: print(repr(e))\nraise ValueError('no')",
  "def f(:",
  "import csv, io, statistics, pathlib\nprint(list(csv.reader(io.StringIO('a,b'))), statistics.mean([1, 2]), pathlib.Path('/a') / 'b')",
];

/** Prints it. Nothing but programs of ours has run here. */
async function snapshot() {
  const bytes = readFileSync(`${folder}/pyodide.asm.wasm`);
  const sources = texts();
  const scripts = sources.map((source) => new Script(source));
  const memory = await remembered(scripts, bytes);
  const size = new Uint32Array(memory.buffer, 0, 2)[1];
  const image = memory.subarray(size);
  let own, filled;
  // As a worker starts, but of WebAssembly that notes what is called.
  const start = head(memory.slice(0, size), () => {
    const whole = new Uint8Array(own.memory.buffer);
    filled = used(whole, image);
    whole.set(image);
  });
  const pyodide = await load(scripts, WebAssembly.compile(watched(bytes)), { _loadSnapshot: start }, (exports) => own = exports);
  await run(pyodide);
  const called = new Uint8Array(own[SHARED].buffer);
  const { first, rest, table, loaded } = split(bytes, (index) => called[index]);
  const codes = scripts.flatMap((script, index) => [encoder.encode(sources[index]), script.createCachedData()]);
  printed({ first, head: memory.slice(0, size), rest }, codes, filled.map(([at, length]) => [at, image.subarray(at, at + length)]), { table, loaded });
}

/** The memory of a Pyodide that has loaded what programs need. */
async function remembered(scripts, bytes) {
  const pyodide = await load(scripts, WebAssembly.compile(bytes), { _makeSnapshot: true }, () => {});
  pyodide.FS.writeFile("/lib/ringfence_guest.py", readFileSync(file));
  pyodide.runPython("import sys; sys.path.append('/lib'); import ringfence_guest");
  return pyodide.makeMemorySnapshot();
}

async function run(pyodide) {
  const guest = pyodide.pyimport("ringfence_guest");
  guest.settle();
  for (const code of COMMON) {
    connect(pyodide, stringify, encoder.encode("x\n"));
    // As in a worker: what a program's end takes is looked through as well.
    await guest.run(stringify({ code, args: [], env: {}, files: {} }), undefined, () => {});
  }
}

/** Where the memory has to be filled: where something is in it, or is to be. */
function used(before, after) {
  const found = [];
  const empty = (bytes) => bytes.every((byte) => byte === 0);
  for (let at = 0; at < after.length; at += PAGE) {
    if (empty(before.subarray(at, at + PAGE)) && empty(after.subarray(at, at + PAGE))) continue;
    const last = found.at(-1);
    if (last && last[0] + last[1] === at) last[1] += PAGE;
    else found.push([at, PAGE]);
  }
  return found;
}

/** Prints an index, after its length, and then everything that it names. */
function printed(parts, codes, pages, names) {
  const all = [];
  let at = 0;
  const placed = (bytes) => {
    all.push(bytes);
    at += bytes.length;
    return [at - bytes.length, bytes.length];
  };
  const index = encoder.encode(stringify({
    ...names,
    ...Object.fromEntries(Object.entries(parts).map(([name, bytes]) => [name, placed(bytes)])),
    codes: codes.map(placed),
    pages: pages.map(([page, bytes]) => [page, placed(bytes)]),
  }));
  write(new Uint8Array(Uint32Array.of(index.length).buffer));
  [index, ...all].forEach(write);
}
