import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createReadStream, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, test } from "node:test";
import { inspect } from "node:util";

import * as ringfence from "ringfence";
import {
  BY_TYPE,
  Client,
  CommandFailed,
  Conflict,
  IncompatibleServer,
  InvalidArguments,
  LimitExceeded,
  NotFound,
  NotSupported,
  PermissionDenied,
  RingfenceError,
  Sandbox,
  ServerGone,
  ServerUnavailable,
  Unauthenticated,
  VERSION,
} from "ringfence";

import { CONNECTION, OPTIONS, calls } from "../src/options.js";
import { KEY, serve, serverForFile } from "../testing/server.js";

const server = serverForFile();

/** Runs a test with a sandbox over the socket, and over TCP with a key. */
function both(name, work) {
  for (const surface of ["socket", "tcp"]) {
    test(`${name} (${surface})`, async () => {
      const client =
        surface === "socket" ? new Client({ socket: server.socket }) : new Client({ url: server.url, apiKey: KEY });
      const sandbox = await Sandbox.create({ client });
      try {
        await work(sandbox, client);
      } finally {
        await sandbox.kill();
      }
    });
  }
}

both("code keeps its state, and has its errors", async (sandbox) => {
  const printed = [];
  const first = await sandbox.runCode("x = 20\nprint('é')\nx + 1", { onStdout: (text) => printed.push(text) });
  assert.deepEqual([printed.join(""), first.text, first.error, first.executionCount], ["é\n", "21", undefined, 1]);
  const failed = await sandbox.runCode("raise ValueError('no: two\\nlines')");
  assert.deepEqual([failed.error.name, failed.error.value], ["ValueError", "no: two\nlines"]);
  for (const [code, language, ...expected] of [
    ["x=", "python", "SyntaxError", "invalid syntax"],
    ["try: 1/0\nexcept Exception as e: raise KeyError(1) from e", "python", "KeyError", "1"],
    ["throw new TypeError('no: x')", "javascript", "TypeError", "no: x"],
    ["throw 5", "javascript", "Error", "5"],
    ["import sys; sys.exit(3)", "python", "exit status", "3"],
  ]) {
    const { error } = await sandbox.runCode(code, { language });
    assert.deepEqual([error.name, error.value], expected, code);
  }
  const late = await sandbox.runCode("while True: pass", { timeout: 0.2 });
  assert.deepEqual([late.outcome, late.error.name, late.interrupted], ["timed_out", "timed_out", true]);
  assert.equal((await sandbox.runCode("x")).text, "20");
  const rich = await sandbox.runCode("class R:\n  def _repr_html_(self): return '<b>'\nR()");
  assert.equal(rich.results[0].html, "<b>");
  const picture = await sandbox.runCode("display({'image/png': b'\\x89PNG\\r\\n\\x1a\\n' + bytes(299_992), 'text/html': 'x' * 300_000}, raw=True)");
  assert.equal(picture.results[0].png.length, 300_000);
  const shown = inspect(picture);
  assert.ok(/300000 bytes/.test(shown) && shown.length < 2000, shown);
  for (const name of ["chart", "data"]) {
    const code = `display({"application/vnd.ringfence.${name}+json": {"a": [1]}}, raw=True)`;
    assert.deepEqual((await sandbox.runCode(code)).results[0][name], { a: [1] });
  }
  const context = await sandbox.contexts.create({ language: "bash", cwd: "/tmp" });
  assert.deepEqual((await sandbox.runCode("pwd", { context })).logs.stdout, ["/tmp\n"]);
  await sandbox.contexts.remove(context);
  await assert.rejects(sandbox.runCode("pwd", { context }), NotFound);
  for (const refused of [(options) => sandbox.contexts.create(options), (options) => sandbox.runCode("1", options), (options) => sandbox.pty.create(options)]) {
    await assert.rejects(refused({ user: "nobody" }), (error) => error instanceof NotSupported && /one user/.test(error.message));
  }
});

both("commands", async (sandbox) => {
  const result = await sandbox.commands.run(["sh", "-c", "echo $N; echo é >&2; exit 3"], { env: { N: "1" } });
  assert.deepEqual([result.stdout, result.stderr, result.exitCode, result.outcome], ["1\n", "é\n", 3, "exited"]);
  for (const [command, message] of [
    ["exit 3", "the command ended with the status 3"],
    ["echo first >&2; printf 'bad\\33[2J\\n\\n' >&2; exit 4", "the command ended with the status 4: bad\ufffd[2J"],
    ["head -c 5000 /dev/zero | tr '\\0' x >&2; exit 5", `the command ended with the status 5: …${"x".repeat(300)}`],
  ]) {
    await assert.rejects(sandbox.commands.run(command, { check: true }), (error) => {
      assert.ok(error instanceof CommandFailed);
      assert.equal(error.message, message);
      return true;
    });
  }
  assert.equal((await sandbox.commands.run("echo $USER", { user: "sandbox" })).stdout, "sandbox\n");
  await assert.rejects(sandbox.commands.run("true", { user: "root" }), /one user/);
  const pieces = [];
  const cut = await sandbox.commands.run("seq 100", { maxOutput: 10, onStdout: (text) => pieces.push(text) });
  assert.deepEqual([cut.truncated, cut.stdout.length, pieces.join("").length], [true, 10, 292]);
  const cat = await sandbox.commands.start("cat", { stdin: true });
  await cat.sendStdin("one\n");
  for await (const output of cat.stream()) {
    assert.deepEqual([output.stream, new TextDecoder().decode(output.data)], ["stdout", "one\n"]);
    break;
  }
  await (await sandbox.commands.connect(cat.pid)).sendStdin("two\n", { end: true });
  assert.equal((await cat.wait()).stdout, "one\ntwo\n");
  await assert.rejects(cat.sendStdin("late"), (error) => error instanceof Conflict && error.hint === "start another with `stdin: true`");
  const sleeper = await sandbox.commands.start(["sleep", "600"]);
  await assert.rejects(sleeper.sendStdin("none"), (error) => error.hint.startsWith("start a process with `stdin: true`"));
  assert.deepEqual([await sleeper.kill(), await sandbox.commands.kill(sleeper.pid)], [true, false]);
  assert.equal((await sleeper.wait()).outcome, "cancelled");
  const pty = await sandbox.pty.create({ command: ["sh"], columns: 91, rows: 17 });
  await pty.sendStdin("stty size; exit 5\n");
  const ended = await pty.wait();
  assert.ok(ended.stdout.includes("17 91") && ended.exitCode === 5, ended.stdout);
});

both("callbacks are awaited", async (sandbox) => {
  const seen = [];
  const slow = async (value) => {
    await new Promise(setImmediate);
    seen.push(value.text ?? value);
  };
  await sandbox.runCode("print(1)", { onStdout: slow });
  await sandbox.runCode("2", { onResult: slow });
  await sandbox.commands.run("echo 3", { onStdout: slow });
  await (await sandbox.commands.start("echo 4 >&2")).wait({ onStderr: slow });
  assert.deepEqual(seen, ["1\n", "2", "3\n", "4\n"]);
  const broken = async () => {
    throw new TypeError("mine");
  };
  await assert.rejects(sandbox.commands.run("echo x", { onStdout: broken }), /mine/);
});

both("files", async (sandbox) => {
  const { files } = sandbox;
  const entry = await files.write("a/b", "é", { mode: 0o600 });
  assert.deepEqual([entry.path, entry.size, entry.mode & 0o777], ["/workspace/a/b", 2, 0o600]);
  assert.equal(await files.read("a/b"), "é");
  async function* pieces() {
    yield new Uint8Array([1]);
    yield new Uint8Array([2, 3]);
  }
  await files.write("pieces", pieces());
  assert.deepEqual(await files.read("pieces", { format: "bytes" }), new Uint8Array([1, 2, 3]));
  await files.write("picture", new Uint8Array([0x89, 0x50]));
  await assert.rejects(files.read("picture"), (error) => error instanceof RingfenceError && /picture is no text.*format: "bytes"/.test(error.message));
  await assert.rejects(files.read("picture", { format: "byte" }), RingfenceError);
  await files.makeDir("d/e");
  assert.equal((await files.move("pieces", "d/moved")).path, "/workspace/d/moved");
  await files.copy("d", "copy");
  const paths = (await files.list("/workspace", { depth: 2 })).map(({ path }) => path);
  assert.ok(paths.includes("/workspace/copy/moved"), paths);
  await files.remove("d");
  assert.deepEqual([await files.exists("d"), (await files.stat("copy")).type], [false, "directory"]);
  await assert.rejects(files.read("nothing"), NotFound);
  const changes = await files.watch();
  await files.write("seen", "x");
  for await (const change of changes) if (change.path === "seen") break;
});

both("data are text, bytes or pieces of them", async (sandbox) => {
  const { files } = sandbox;
  const text = () => new Blob(["a", "é"]);
  for (const data of [text(), text().stream(), await text().arrayBuffer(), ["a", "", Buffer.from("é")]]) {
    await files.write("kept", data);
    assert.equal(await files.read("kept"), "aé");
  }
  const cat = await sandbox.commands.start("cat", { stdin: true });
  for (const [data, type] of [[undefined, "undefined"], [null, "null"], [5, "number"], [{ a: 1 }, "Object"], [Promise.resolve("x"), "Promise"]]) {
    const refused = { name: "InvalidArguments", message: `expected text, bytes, a Blob, or an iterable of text or bytes for the data, got ${type}` };
    for (const call of [files.write("kept", data), files.extract("kept", data), cat.sendStdin(data)]) await assert.rejects(call, refused);
  }
  assert.equal(await files.read("kept"), "aé");
  await cat.sendStdin(["in ", "two"], { end: true });
  assert.equal((await cat.wait()).stdout, "in two");
});

both("an upload whose source fails is ended, with the error of the source", async (sandbox) => {
  const { files } = sandbox;
  async function* pieces(last) {
    yield "begun";
    if (last instanceof Error) throw last;
    yield last;
  }
  const mine = new RangeError("mine");
  await files.write("kept", "old");
  await assert.rejects(files.write("kept", pieces(mine)), (error) => error === mine);
  await assert.rejects(files.extract("kept", pieces(mine)), (error) => error === mine);
  await assert.rejects(files.write("kept", createReadStream("/nowhere/missing")), { code: "ENOENT" });
  const early = new Readable({ read() {} });
  const written = files.write("kept", early);
  early.destroy(mine);
  await assert.rejects(written, (error) => error === mine);
  for (const [last, type] of [[null, "null"], [5, "number"]]) {
    const refused = { name: "InvalidArguments", message: `expected text or bytes for each piece of the data, got ${type}` };
    await assert.rejects(files.write("kept", pieces(last)), refused);
  }
  const cat = await sandbox.commands.start("cat", { stdin: true });
  await assert.rejects(cat.sendStdin(pieces(mine), { end: true }), (error) => error === mine);
  await cat.kill();
  // The server removes the partial file of a request that has ended.
  while ((await files.list()).length > 1);
  assert.equal(await files.read("kept"), "old");
});

both("large files pass through", async (_, client) => {
  const sandbox = await Sandbox.create({ client, memory: "512MiB", disk: "128MiB" });
  try {
    const piece = new Uint8Array(1 << 20).fill(7);
    async function* megabytes(count) {
      for (let at = 0; at < count; at += 1) yield piece;
    }
    assert.equal((await sandbox.files.write("big", megabytes(100))).size, 100 << 20);
    let length = 0;
    for await (const part of sandbox.files.stream("big")) length += part.length;
    assert.equal(length, 100 << 20);
    await assert.rejects(sandbox.files.write("more", megabytes(100)), LimitExceeded);
  } finally {
    await sandbox.kill();
  }
});

both("aborting cancels", async (sandbox) => {
  const abort = new AbortController();
  const running = sandbox.commands.run("echo ready; exec sleep 600", {
    onStdout: () => abort.abort(new Error("enough")),
    signal: abort.signal,
  });
  await assert.rejects(running, /enough/);
  const [process] = await sandbox.commands.list();
  assert.equal((await (await sandbox.commands.connect(process.pid)).wait()).outcome, "cancelled");
  await sandbox.runCode("kept = 1");
  const second = new AbortController();
  const code = sandbox.runCode("print('ready', flush=True)\nwhile True: pass", {
    onStdout: () => second.abort(),
    signal: second.signal,
  });
  await assert.rejects(code, { name: "AbortError" });
  assert.equal((await sandbox.runCode("kept")).text, "1");
  await assert.rejects(sandbox.commands.run("true", { signal: second.signal }), { name: "AbortError" });
});

both("errors are typed", async (sandbox, client) => {
  await assert.rejects(sandbox.setTimeout("never"), (error) => {
    assert.ok(error instanceof InvalidArguments && error.requestId);
    assert.deepEqual([error.type, error.status], ["invalid_arguments", 422]);
    return true;
  });
  for (const [call, message] of [
    [() => Sandbox.create({ client, timeout: "5m", memory: "1 parsec", metadata: { é: "1" } }), "`memory`: `1 parsec` is not a size; write it like `10KiB` or `256MiB`"],
    [() => Sandbox.create({ client, metadata: { é: "1" }, env: { A: 1 } }), "`env.A`: invalid type: integer `1`, expected a string"],
    [() => Sandbox.create({ client, env: { a_b: 1 } }), "`env.a_b`: invalid type: integer `1`, expected a string"],
  ]) {
    await assert.rejects(call(), { message, hint: "" });
  }
  await assert.rejects(client.transport.json("POST", "/from/the/future", { json: {} }), IncompatibleServer);
  assert.deepEqual([await sandbox.kill(), await sandbox.kill(), await sandbox.isRunning()], [true, false, false]);
  await assert.rejects(sandbox.files.exists("a"), NotFound);
});

test("programs, batches and tools", async () => {
  const client = new Client({ socket: server.socket });
  const printed = [];
  const result = await client.run("import sys; print(sys.stdin.read())", { stdin: "in", onStdout: (text) => printed.push(text) });
  assert.deepEqual([printed.join(""), result.exitCode, result.meta.outcome], ["in\n", 0, "exited"]);
  const items = [];
  for await (const item of client.batch(["print(1)", { code: "exit 2", language: "bash" }, { code: 1 }])) items.push(item);
  items.sort((one, two) => one.index - two.index);
  assert.deepEqual([items[0].result.stdout, items[1].result.exitCode], ["1\n", 2]);
  assert.ok(items[2].error instanceof InvalidArguments);
  assert.ok((await client.tools()).some(({ name }) => name === "run_code"));
  assert.equal((await client.callTool("run_code", { code: "print(2)" })).structured.stdout, "2\n");
  await assert.rejects(client.callTool("host_exec", { command: "true" }), PermissionDenied);
});

test("sandboxes are found", async () => {
  const client = new Client({ socket: server.socket });
  const sandbox = await Sandbox.create({ client, name: "lab", metadata: { some_team: "red" }, timeout: "10m" });
  try {
    const [info] = await Sandbox.list({ client, metadata: { some_team: "red" } });
    assert.deepEqual([info.name, info.metadata], ["lab", { some_team: "red" }]);
    const page = await Sandbox.listPage({ client, limit: 1 });
    assert.deepEqual([page.sandboxes.length, page.next], [1, undefined]);
    assert.equal((await Sandbox.connect("lab", { socket: server.socket })).sandboxId, sandbox.sandboxId);
    await assert.rejects(Sandbox.create({ client, name: "lab" }), Conflict);
    assert.ok((await sandbox.setTimeout(3600)).expiresAt > info.expiresAt);
  } finally {
    await sandbox.kill();
  }
});

test("code runs as a user", { skip: process.geteuid() !== 0 && "`--fence box` needs a server that runs as root" }, async () => {
  const client = new Client({ socket: server.socket });
  const who = "import os; os.getuid()";
  const sandbox = await Sandbox.create({ client, fence: "box" });
  try {
    const one = await sandbox.contexts.create({ user: "nobody" });
    assert.deepEqual([one.user, (await sandbox.contexts.list())[0].user], ["nobody", "nobody"]);
    for (const options of [{ context: one }, { user: "nobody" }]) assert.equal((await sandbox.runCode(who, options)).text, "65534");
    assert.equal((await sandbox.runCode(who)).text, "0");
    await assert.rejects(sandbox.runCode(who, { context: one, user: "root" }), InvalidArguments);
    await assert.rejects(sandbox.runCode(who, { user: "nope" }), NotFound);
    await assert.rejects(sandbox.contexts.create({ user: "nope" }), NotFound);
  } finally {
    await sandbox.kill();
  }
});

test("each option of the API is an argument", async () => {
  const document = await (await fetch(`${server.url}/openapi.json`)).json();
  const members = Object.keys(document.components.schemas.CreateSandbox.properties);
  const types = readFileSync(new URL("../src/index.d.ts", import.meta.url), "utf8");
  const [, declared] = /interface SandboxOptions [^{]*\{(.*?)\n\}/s.exec(types);
  const names = Array.from(declared.matchAll(/^  (\w+)\?:/gm), ([, name]) => name).filter((name) => name !== "client");
  const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  assert.deepEqual(names.sort(), members.map(camel).sort());
  const others = ["client", "signal", ...CONNECTION];
  assert.deepEqual(OPTIONS.Sandbox.create.slice(1).filter((name) => !others.includes(name)).sort(), names);
});

test("each call refuses options that it does not know", async () => {
  const client = new Client({ socket: server.socket });
  assert.throws(() => new Client({ sockt: server.socket }), { name: "InvalidArguments", message: /^unknown option `sockt`, expected one of `url`/ });
  const sandbox = await Sandbox.create({ client });
  try {
    const { approvals, audit, images, keys, runs, snapshots } = client;
    const { files, commands, pty, contexts, ports } = sandbox;
    const CommandHandle = await commands.start("cat", { stdin: true });
    const instances = { Client: client, Approvals: approvals, Images: images, Runs: runs, Snapshots: snapshots, Audit: audit, Keys: keys };
    Object.assign(instances, { Sandbox: sandbox, Files: files, Commands: commands, CommandHandle, Pty: pty, Contexts: contexts, Ports: ports });
    const all = Object.entries(instances).flatMap(([name, each]) => calls(Object.getPrototypeOf(each), OPTIONS[name]).map((call) => [each, call]));
    all.push(...calls(Sandbox, OPTIONS.Sandbox).map((call) => [Sandbox, call]));
    assert.ok(all.length > 50, all.length);
    for (const [each, [call, [position]]] of all) {
      const refused = async () => await each[call](...Array(position).fill("x"), { tiemout: 3 });
      await assert.rejects(refused, { name: "InvalidArguments", message: /^unknown option `tiemout`, expected / }, call);
    }
    await assert.rejects(commands.run("true", { cdw: "/" }), { message: "unknown option `cdw`, expected one of `cwd`, `env`, `timeout`, `user`, `onStdout`, `onStderr`, `maxOutput`, `check`, `signal` (hint: use `cwd`)" });
    await assert.rejects(files.stat("x", { depth: 1 }), { message: "unknown option `depth`, expected none" });
    await assert.rejects(files.read("x", "bytes"), { message: "expected an object with options, got string (hint: pass one such as `{ format: \"bytes\" }`)" });
    await assert.rejects(sandbox.runCode("1", "bash"), { hint: 'pass one such as `{ language: "bash" }`' });
    assert.equal((await commands.run("echo x", { cdw: undefined })).stdout, "x\n");
  } finally {
    await sandbox.kill();
  }
});

test("options of the root file system", async () => {
  const client = new Client({ socket: server.socket });
  const root = mkdtempSync(join(tmpdir(), "root"));
  writeFileSync(join(root, "data"), "here");
  execFileSync("tar", ["-cf", join(root, "root.tar"), "-C", root, "data"]);
  execFileSync(process.env.RINGFENCE_BIN, ["image", "import", join(root, "root.tar"), "--name", "my/root:1"], { env: server.env });
  const sandbox = await Sandbox.create({ client, image: "my/root:1", fence: "run", onExpiry: "pause", ports: true });
  try {
    assert.equal(await sandbox.files.read("/data"), "here");
    const info = await sandbox.getInfo();
    assert.deepEqual([info.image, info.fence, info.onExpiry, info.ports], ["docker.io/my/root:1", "run", "pause", true]);
    await assert.rejects(Sandbox.create({ client, snapshot: "nothing" }), NotFound);
    await assert.rejects(Sandbox.create({ client, packages: "0".repeat(64) }), /none are kept/);
    await assert.rejects(Sandbox.create({ client, packages: ["0".repeat(64)] }), /none are kept/);
    const byHand = /run --with pandas,numpy -c pass` and `ringfence run -l javascript --with npm:zod -c 0`/;
    await assert.rejects(Sandbox.create({ client, packages: ["pandas", "npm:zod", "numpy"] }), byHand);
  } finally {
    await sandbox.kill();
    rmSync(root, { recursive: true });
  }
});

describe("servers", () => {
  for (const surface of ["socket", "tcp"]) {
    test(`a death in mid-stream has its own error (${surface})`, async () => {
      const own = await serve();
      const connection = surface === "socket" ? { socket: own.socket } : { url: own.url, apiKey: KEY };
      const sandbox = await Sandbox.create(connection);
      const output = (await sandbox.commands.start("echo ready; exec sleep 600")).stream();
      await output.next();
      let ending;
      const code = sandbox.runCode("import time\nprint('ready', flush=True)\ntime.sleep(600)", {
        onStdout: () => (ending = own.end("SIGKILL")),
      });
      await assert.rejects(code, ServerGone);
      await ending;
      await assert.rejects(output.next(), ServerGone);
      await assert.rejects(sandbox.getInfo(), ServerUnavailable);
    });
  }

  test("addresses that are refused", async () => {
    assert.throws(() => new Client({ url: "http://sandboxes.invalid", apiKey: "k" }), /unencrypted/);
    assert.throws(() => new Client({ url: "http://user:key@127.0.0.1:1" }), /key in an address/);
    assert.throws(() => new Client({ url: "ftp://127.0.0.1" }), RingfenceError);
    assert.throws(() => new Client({ socket: "/s", apiKey: "k" }), /no use/);
    const closed = createServer().listen(0, "127.0.0.1");
    await once(closed, "listening");
    const { port } = closed.address();
    closed.close();
    await once(closed, "close");
    await assert.rejects(Sandbox.list({ url: `http://127.0.0.1:${port}`, apiKey: "k" }), (error) => {
      assert.ok(error instanceof ServerUnavailable && /--listen/.test(error.hint), error);
      assert.ok(error.message.startsWith(`no server answers at http://127.0.0.1:${port}: `), error);
      return true;
    });
    await assert.rejects(Sandbox.list({ socket: "/nowhere/engine.sock" }), ServerUnavailable);
    await assert.rejects(Sandbox.list({ url: server.url }), Unauthenticated);
  });

  test("a key from a file is the key, and one that no header holds is refused", async () => {
    assert.deepEqual(await Sandbox.list({ url: server.url, apiKey: ` ${KEY}\r\n` }), []);
    for (const apiKey of ["rf_sec\nret", "rf_secret\0", "rf_secr\u00e9t", new TextEncoder().encode("rf_secret")]) {
      assert.throws(() => new Client({ url: server.url, apiKey }), (error) => {
        assert.ok(error instanceof RingfenceError && /`apiKey`/.test(error.message) && !/sec/.test(error.stack.split("\n")[0]), error);
        return true;
      });
    }
    process.env.RINGFENCE_API_KEY = `${KEY}\n`;
    try {
      assert.deepEqual(await Sandbox.list({ url: server.url }), []);
      process.env.RINGFENCE_API_KEY = "rf_sec\nret";
      assert.throws(() => new Client({ url: server.url }), /RINGFENCE_API_KEY/);
    } finally {
      delete process.env.RINGFENCE_API_KEY;
    }
  });

  test("a piece is not lost where `fetch` does not connect, without `ReadableStream.from`", async () => {
    const { fetch } = globalThis;
    const { from } = ReadableStream;
    const sandbox = await Sandbox.create({ url: server.url, apiKey: KEY });
    async function* pieces() {
      yield "first, ";
      yield "second";
    }
    try {
      ReadableStream.from = undefined;
      await sandbox.files.write("fetched", pieces());
      globalThis.fetch = async () => {
        await new Promise(setImmediate);
        throw new TypeError("fetch failed", { cause: new Error("bad port") });
      };
      await sandbox.files.write("by node", pieces());
      for (const name of ["fetched", "by node"]) assert.equal(await sandbox.files.read(name), "first, second", name);
    } finally {
      ReadableStream.from = from;
      globalThis.fetch = fetch;
      await sandbox.kill();
    }
  });

  test("a certificate that is not trusted is named", async () => {
    const { fetch } = globalThis;
    try {
      for (const [code, hint] of [["DEPTH_ZERO_SELF_SIGNED_CERT", /NODE_EXTRA_CA_CERTS/], ["ERR_TLS_CERT_ALTNAME_INVALID", /name/]]) {
        // As Node.js throws it.
        globalThis.fetch = async () => {
          throw new TypeError("fetch failed", { cause: Object.assign(new Error("self-signed"), { code }) });
        };
        await assert.rejects(Sandbox.list({ url: "https://127.0.0.1:1", apiKey: "k" }), (error) => {
          assert.ok(error instanceof ServerUnavailable && hint.test(error.hint), error);
          return error.message.startsWith("the certificate of https://127.0.0.1:1 is not trusted: self-signed");
        });
      }
    } finally {
      globalThis.fetch = fetch;
    }
  });

  test("the private socket is that of the environment, and must be private", async () => {
    const { chmodSync } = await import("node:fs");
    const { dirname } = await import("node:path");
    const before = process.env.XDG_RUNTIME_DIR;
    process.env.XDG_RUNTIME_DIR = server.env.XDG_RUNTIME_DIR;
    try {
      assert.deepEqual(await Sandbox.list(), []);
      chmodSync(dirname(server.socket), 0o755);
      await assert.rejects(Sandbox.list(), /others may enter/);
      chmodSync(dirname(server.socket), 0o700);
      assert.deepEqual(await Sandbox.list(), []);
    } finally {
      chmodSync(dirname(server.socket), 0o700);
      if (before === undefined) delete process.env.XDG_RUNTIME_DIR;
      else process.env.XDG_RUNTIME_DIR = before;
    }
  });
});

test("versions and types agree with the rest of the repository", () => {
  const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
  assert.equal(JSON.parse(read("../package.json")).version, VERSION);
  assert.ok(read("../../../Cargo.toml").includes(`version = "${VERSION}"`));
  const declared = read("../src/index.d.ts").matchAll(/^export declare (?:class|function|const) (\w+)/gm);
  assert.deepEqual(Array.from(declared, ([, name]) => name).sort(), Object.keys(ringfence).sort());
  const rows = read("../../../docs/reference/api.md").matchAll(/^\| \d+ \| `(\w+)` \|/gm);
  assert.deepEqual(new Set(Array.from(rows, ([, type]) => type)), new Set(Object.keys(BY_TYPE)));
});
