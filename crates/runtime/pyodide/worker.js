// Hosts Pyodide in Deno for one program. The engine and it speak JSON lines over standard input and output.
//
// `worker.js snapshot PYODIDE GUEST` prints the memory of a Pyodide that has loaded what programs need;
// `worker.js run PYODIDE SNAPSHOT MIB` serves. A program that reaches JavaScript finds nothing there: texts are never code, Deno
// grants nothing, and around it all there is the fence.

const [mode, folder, file, mebibytes] = Deno.args;
const { exit, permissions, readFileSync, stdin, stdout } = Deno;
const encoder = new TextEncoder();
const stringify = JSON.stringify, parse = JSON.parse;

function write(bytes) {
  for (let at = 0; at < bytes.length;) at += stdout.writeSync(bytes.subarray(at));
}

function send(type, id, data) {
  write(encoder.encode(stringify({ type, id, data }) + "\n"));
}

/** Has memory that would grow past the limit not grow: Python raises MemoryError. */
function limitMemory(limit) {
  const grow = WebAssembly.Memory.prototype.grow;
  WebAssembly.Memory.prototype.grow = function (pages) {
    if (this.buffer.byteLength + pages * 65536 > limit) throw new RangeError("over the limit");
    return grow.call(this, pages);
  };
}

async function load(options) {
  const { loadPyodide } = await import(`file://${folder}/pyodide.mjs`);
  const env = { HOME: "/workspace", LANG: "C.UTF-8", USER: "guest", RINGFENCE_OUTPUT: "/output" };
  return await loadPyodide({ indexURL: folder, jsglobals: Object.create(null), env, ...options });
}

async function* lines() {
  const decoder = new TextDecoder();
  const buffer = new Uint8Array(65536);
  let pending = [];
  for (let count; (count = await stdin.read(buffer)) !== null;) {
    const [first, ...rest] = decoder.decode(buffer.subarray(0, count), { stream: true }).split("\n");
    pending.push(first);
    for (const next of rest) {
      yield pending.join("");
      pending = [next];
    }
  }
}

function connect(pyodide, id, input) {
  const writer = (stream) => ({
    write(bytes) {
      send("output", id, { stream, base64: bytes.toBase64() });
      return bytes.length;
    },
  });
  pyodide.setStdout(writer("stdout"));
  pyodide.setStderr(writer("stderr"));
  let at = 0;
  pyodide.setStdin({
    read(buffer) {
      const part = input.subarray(at, at + buffer.length);
      buffer.set(part);
      at += part.length;
      return part.length;
    },
  });
}

async function snapshot() {
  const pyodide = await load({ _makeSnapshot: true });
  pyodide.FS.writeFile("/lib/ringfence_guest.py", readFileSync(file));
  pyodide.runPython("import sys; sys.path.append('/lib'); import ringfence_guest");
  write(pyodide.makeMemorySnapshot());
}

async function serve() {
  limitMemory(Number(mebibytes) * 1024 * 1024);
  const pyodide = await load({ _loadSnapshot: readFileSync(file) });
  const guest = pyodide.pyimport("ringfence_guest");
  guest.settle();
  pyodide.unregisterJsModule("pyodide_js");
  await permissions.revoke({ name: "read" });
  delete globalThis.Deno;
  send("ready", "", {});
  for await (const line of lines()) {
    const { id, data } = parse(line);
    connect(pyodide, id, Uint8Array.fromBase64(data.stdin));
    send("complete", id, parse(await guest.run(stringify(data))));
  }
}

await (mode === "snapshot" ? snapshot() : serve());
exit(0);
