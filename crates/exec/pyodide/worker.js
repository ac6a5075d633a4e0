// Hosts Pyodide in Deno for one program. The engine and it speak JSON lines over standard input and output.
//
// `worker.js snapshot PYODIDE GUEST` prints what the others start from;
// `worker.js unpack PYODIDE SNAPSHOT WHEELS MIB` prints the files of wheels;
// `worker.js cold PYODIDE SNAPSHOT FILES MIB` serves one program; `worker.js warm …` has run one of ours before.
// A program that reaches JavaScript finds nothing there: texts are never code, Deno grants nothing, and around it all there
// is the fence.

import { Script } from "node:vm";

const [mode, folder, file, packages, mebibytes] = Deno.args;
const { exit, openSync, permissions, readDirSync, readFileSync, SeekMode, stdin, stdout } = Deno;
const encoder = new TextEncoder();
const decode = (bytes) => new TextDecoder().decode(bytes);
const stringify = JSON.stringify, parse = JSON.parse;

// What is said here is no message.
console.log = console.info = console.debug = console.error;

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

/** Pyodide's two modules as scripts: Deno would parse a module before V8 does, and keeps nothing of what V8 has compiled. */
function texts() {
  const text = (name, end, value) => {
    const module = decode(readFileSync(`${folder}/${name}`));
    if (!module.includes(end)) throw new Error(`${name} does not export what it should`);
    const script = module.replace(end, `;return ${value}`).replaceAll("import.meta.url", stringify(`file://${folder}/${name}`));
    return `(function(){"use strict";${script}\n})()`;
  };
  return [
    text("pyodide.mjs", "export{dt as loadPyodide,U as version};", "dt"),
    text("pyodide.asm.mjs", "export default _createPyodideModule;", "_createPyodideModule"),
  ];
}

/** Pyodide, of the WebAssembly that `compiled` promises, told of the first instance of it. */
async function load(scripts, compiled, options, tell) {
  const { setImmediate, setTimeout } = globalThis;
  const instantiate = WebAssembly.instantiate;
  const env = { HOME: "/workspace", LANG: "C.UTF-8", USER: "guest", RINGFENCE_OUTPUT: "/output" };
  const lockFileContents = parse(decode(readFileSync(`${folder}/pyodide-lock.json`)));
  // Pyodide is to take this for a shell that knows how to read files: Node's modules take longer to load, and can do more.
  delete globalThis.process;
  globalThis.WorkerGlobalScope = class {};
  globalThis.read = globalThis.load = () => {};
  globalThis.readbuffer = (path) => path.endsWith(".wasm") ? new ArrayBuffer(0) : readFileSync(path).buffer;
  globalThis.setTimeout = (call, delay, ...rest) => delay ? setTimeout(call, delay, ...rest) : setImmediate(call, ...rest);
  WebAssembly.instantiate = async (code, imports) => {
    if (code instanceof WebAssembly.Module) return await instantiate(code, imports);
    const module = await compiled;
    const { exports } = await instantiate(module, imports);
    tell(exports, imports, module);
    const own = Object.entries(exports).filter(([name]) => !name.startsWith(SHARED));
    return { module, instance: { exports: Object.fromEntries(own) } };
  };
  const [loadPyodide, createPyodideModule] = scripts.map((script) => script.runInThisContext());
  const pyodide = await loadPyodide({ indexURL: folder, jsglobals: Object.create(null), createPyodideModule, env, lockFileContents, ...options });
  WebAssembly.instantiate = instantiate;
  return pyodide;
}

/** The head of a snapshot, which Pyodide believes to be all of it. `fill` is called when the memory is to be filled. */
function head(bytes, fill) {
  bytes.subarray = function (begin, end) {
    if (end === undefined) fill();
    return Uint8Array.prototype.subarray.call(this, begin, end);
  };
  return bytes;
}

/** What comes on standard input, line by line; null at its end. Whoever waits for the next line waits alone. */
const incoming = {
  decoder: new TextDecoder(),
  buffer: new Uint8Array(65536),
  begun: "",
  whole: [],
  take(count) {
    if (count === null) return this.whole.push(null);
    const [first, ...rest] = this.decoder.decode(this.buffer.subarray(0, count), { stream: true }).split("\n");
    this.begun += first;
    for (const next of rest) {
      this.whole.push(this.begun);
      this.begun = next;
    }
  },
  next() {
    while (!this.whole.length) this.take(stdin.readSync(this.buffer));
    return this.whole.shift();
  },
  async arrive() {
    while (!this.whole.length) this.take(await stdin.read(this.buffer));
    return this.whole.shift();
  },
};

/** A program's end of the bridge, for texts; `window` is how many bytes may be under way to the host. */
function port(id, window) {
  const decoder = new TextDecoder();
  let room = window, come = "", over = false, arriving;
  function take(line) {
    const { type, data } = line === null ? { data: { base64: "" } } : parse(line);
    if (type === "taken") room += data.bytes;
    else if (data.base64 === "") over = true;
    else come += decoder.decode(Uint8Array.fromBase64(data.base64), { stream: true });
  }
  return {
    room: () => room,
    send(text) {
      const bytes = encoder.encode(text);
      room -= bytes.length;
      send("bridge", id, { base64: bytes.toBase64() });
    },
    /** What has come; undefined at the end of it. */
    taken() {
      const text = come;
      come = "";
      return text === "" && over ? undefined : text;
    },
    /** Returns once something has come. Not while `listens`. */
    wait() {
      if (!over) take(incoming.next());
    },
    listens: () => arriving !== undefined,
    arrived: () => arriving ??= incoming.arrive().then((line) => {
      arriving = undefined;
      take(line);
    }),
  };
}

function connect(pyodide, print, input) {
  const writer = (stream) => ({
    write(bytes) {
      print({ stream, base64: bytes.toBase64() });
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

/** The file that snapshot.js has made: its index, and `part`, which reads what that tells the place of. */
function opened(path) {
  const disk = openSync(path);
  const read = (bytes) => {
    for (let at = 0; at < bytes.length;) {
      const count = disk.readSync(bytes.subarray(at));
      if (count === null) throw new Error("the snapshot has been cut off");
      at += count;
    }
    return bytes;
  };
  const [length] = new Uint32Array(read(new Uint8Array(4)).buffer);
  const index = parse(decode(read(new Uint8Array(length))));
  const part = ([at, size], bytes = new Uint8Array(size)) => {
    disk.seekSync(4 + length + at, SeekMode.Start);
    return read(bytes);
  };
  return { ...index, part };
}

/** A function of ours as one of WebAssembly. */
function callable(call) {
  const code = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 2, 5, 1, 0, 0, 0, 0, 7, 5, 1, 1, 0x66, 0, 0];
  return new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.from(code)), { "": { "": call } }).exports.f;
}

/** Pyodide from the snapshot, and what loads the rest of its WebAssembly, which otherwise comes when it is first needed. */
async function restored({ codes, first, head: beginning, loaded, pages, part, rest, table }) {
  const compiled = WebAssembly.compile(part(first));
  const scripts = [0, 2].map((at) => new Script(decode(part(codes[at])), { cachedData: part(codes[at + 1]) }));
  let own, complete;
  const start = head(part(beginning), () => {
    for (const [at, place] of pages) part(place, new Uint8Array(own.memory.buffer, at, place[1]));
  });
  const pyodide = await load(scripts, compiled, { _loadSnapshot: start }, (exports, imports, module) => {
    own = exports;
    const given = { [SHARED]: exports };
    for (const { module: from, name } of WebAssembly.Module.imports(module)) (given[from] ??= {})[name] = imports[from][name];
    complete = () => {
      if (own[loaded].value) return;
      new WebAssembly.Instance(new WebAssembly.Module(part(rest)), given);
      own[loaded].value = 1;
    };
    own[table].set(0, callable(complete));
  });
  return { pyodide, complete };
}

/** Prints the files of wheels one behind the other: a line with path and length, and the bytes. */
async function unpack() {
  limitMemory(Number(mebibytes) * 1024 * 1024);
  const { pyodide } = await restored(opened(file));
  const names = [...readDirSync(packages)].map(({ name }) => name).sort();
  pyodide.FS.mkdir("/wheels");
  const wheels = names.map((name) => {
    pyodide.FS.writeFile(`/wheels/${name}`, readFileSync(`${packages}/${name}`), { canOwn: true });
    return `/wheels/${name}`;
  });
  pyodide.setStderr({ batched: console.error });
  exit(pyodide.pyimport("ringfence_guest").unpack(stringify(wheels), (path, content) => {
    const bytes = content.toJs();
    content.destroy();
    if (/\.so(\.|$)/.test(path)) checkLibrary(path, bytes);
    write(encoder.encode(stringify([path, bytes.length]) + "\n"));
    write(bytes);
  }));
}

/** A library of WebAssembly must bring no texts that become code. */
function checkLibrary(path, bytes) {
  const wasm = [0, 0x61, 0x73, 0x6d].every((byte, at) => bytes[at] === byte);
  const exported = wasm ? WebAssembly.Module.exports(new WebAssembly.Module(bytes)) : [];
  if (exported.some(({ name }) => name === "__start_em_asm" || name.startsWith("__em_js__"))) {
    throw new Error(`its library ${path} holds JavaScript, which is not run here`);
  }
}

/** Puts the files of packages where Python finds them. All are parts of one buffer, which nobody else has. */
function install(pyodide, files) {
  const decoder = new TextDecoder();
  let last;
  for (let at = 0; at < files.length;) {
    const start = files.indexOf(10, at) + 1;
    const [path, length] = parse(decoder.decode(files.subarray(at, start)));
    at = start + length;
    const directory = path.replace(/\/[^/]*$/, "");
    if (directory !== last) pyodide.FS.mkdirTree(last = directory);
    pyodide.FS.writeFile(path, files.subarray(start, at), { canOwn: true });
  }
}

async function serve() {
  const files = packages === "" ? new Uint8Array() : readFileSync(packages);
  limitMemory(Number(mebibytes) * 1024 * 1024 - files.length);
  const { pyodide, complete } = await restored(opened(file));
  install(pyodide, files);
  const guest = pyodide.pyimport("ringfence_guest");
  guest.settle();
  pyodide.unregisterJsModule("pyodide_js");
  await permissions.revoke({ name: "read" });
  delete globalThis.Deno;
  if (mode === "warm") {
    complete();
    connect(pyodide, stringify, new Uint8Array());
    for (let time = 0; time < 3; time++) await guest.warm_up();
  }
  send("ready", "", {});
  // Asynchronously: meanwhile V8 finishes what it has begun.
  const { id, data: { stdin: input, window, ...program } } = parse(await incoming.arrive());
  connect(pyodide, (data) => send("output", id, data), Uint8Array.fromBase64(input));
  const bridge = window ? port(id, window) : undefined;
  const end = (completed) => {
    send("complete", id, parse(completed));
    // It is killed faster than it ends.
    incoming.next();
    exit(0);
  };
  end(await guest.run(stringify(program), bridge, end));
}

await ({ snapshot, unpack }[mode] ?? serve)();
exit(0);
