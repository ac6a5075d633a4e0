import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";

import { serve, world } from "../testing/server.js";

const USER = `
import { Sandbox } from "ringfence";
const sandbox = await Sandbox.create();
console.log((await sandbox.runCode("6 * 7")).text);
await sandbox.kill();
process.stdin.on("end", () => process.exit()).resume();
`;

/** Starts a program that uses the package, and waits for its first line. */
async function user(env, program = USER) {
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    env: { ...env, RINGFENCE_BIN: process.env.RINGFENCE_BIN },
    cwd: new URL("..", import.meta.url),
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [line] = await once(child.stdout.setEncoding("utf8"), "data");
  return { child, line: line.trim() };
}

/** Resolves to a connection to a server, or to `undefined` if none listens. */
async function connected(own) {
  const socket = connect(own.socket);
  return await Promise.race([
    once(socket, "connect").then(() => socket),
    once(socket, "error").then(() => undefined),
  ]).catch(() => undefined);
}

/** Waits until a server has ended, which ends its connections. */
async function ended(connection) {
  connection.on("error", () => {}).resume();
  // `once` would reject at an error, and a server that is killed may reset its connections.
  if (!connection.destroyed) await new Promise((resolve) => connection.on("close", resolve));
}

test("a server that it started serves two, and ends with the last, however that ends", async () => {
  const own = world();
  const [one, two] = await Promise.all([user(own.env), user(own.env)]);
  assert.deepEqual([one.line, two.line], ["42", "42"]);
  const connection = await connected(own);
  one.child.kill("SIGKILL");
  await once(one.child, "exit");
  const second = await connected(own);
  assert.ok(second, "it serves the other one");
  second.destroy();
  two.child.stdin.end();
  await once(two.child, "exit");
  await ended(connection);
  // And there is room for the next.
  const three = await user(own.env);
  assert.equal(three.line, "42");
  const last = await connected(own);
  three.child.kill("SIGKILL");
  await ended(last);
  rmSync(own.root, { recursive: true, force: true });
});

/** Returns the process id of the server that the package has started in a world. */
function startedServer(own) {
  const isIt = (pid) => {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      return line.includes("--while-used") && line.includes(own.root);
    } catch {
      return false;
    }
  };
  return Number(readdirSync("/proc").find((name) => /^\d+$/.test(name) && isIt(name)));
}

test("a sandbox is not moved to another server", async () => {
  const own = world();
  const { child, line } = await user(
    own.env,
    `
import { Sandbox } from "ringfence";
const sandbox = await Sandbox.create();
const code = "import time; print(); time.sleep(600)";
const shown = sandbox.runCode(code, { onStdout: () => console.log("ready") });
const calls = [shown.catch(String)];
for await (const _ of process.stdin);
calls.push(sandbox.files.read("a").catch(String));
await Promise.all(calls);
const next = await Sandbox.create();
calls.push(sandbox.getInfo().catch(String), sandbox.fork().catch(String), next.runCode("6 * 7").then(({ text }) => text));
calls.push(sandbox.kill(), sandbox.isRunning());
console.log((await Promise.all(calls)).join("\\n"));
`,
  );
  assert.equal(line, "ready");
  const connection = await connected(own);
  process.kill(startedServer(own), "SIGKILL");
  await ended(connection);
  const exit = once(child, "exit");
  const said = once(child.stdout, "data");
  child.stdin.end();
  const gone = "ServerGone: the server has ended, and its sandboxes with it (hint: create another one)";
  assert.deepEqual((await said)[0].split("\n"), [gone, gone, gone, gone, "42", "false", "false", ""]);
  assert.deepEqual(await exit, [0, null]);
  rmSync(own.root, { recursive: true, force: true });
});

test("a server that somebody else started stays", async () => {
  const own = await serve();
  const { child, line } = await user(own.env);
  assert.equal(line, "42");
  child.kill("SIGKILL");
  await once(child, "exit");
  const connection = await connected(own);
  assert.ok(connection);
  connection.destroy();
  await own.end();
});

test("a server that cannot start says why, once", async () => {
  const own = world();
  writeFileSync(join(own.root, "config/ringfence/ringfence.toml"), "[sandbox]\ntimeout = 'never'\n");
  const failing = 'import { Sandbox } from "ringfence"; await Sandbox.list().catch((error) => console.log(error.name, error.message));';
  const { line } = await user(own.env, failing);
  assert.match(line, /^ServerUnavailable the server ended at its start: [^]*timeout/);
  rmSync(own.root, { recursive: true, force: true });
});

test("the program is looked for in safe places", async () => {
  const own = world();
  const look = async (env) => {
    const child = spawn(
      process.execPath,
      ["--input-type=module", "--eval", 'import { Sandbox } from "ringfence"; await Sandbox.list().catch((error) => console.log(error.message));'],
      { env: { ...own.env, ...env }, cwd: new URL("..", import.meta.url), stdio: ["ignore", "pipe", "inherit"] },
    );
    const [line] = await once(child.stdout.setEncoding("utf8"), "data");
    return line;
  };
  assert.match(await look({ PATH: "::.:./bin:/nowhere" }), /no program `ringfence`/);
  assert.match(await look({ RINGFENCE_BIN: "ringfence" }), /absolute path/);
  assert.match(await look({ RINGFENCE_BIN: "/nope" }), /no program at "\/nope"/);
  rmSync(own.root, { recursive: true, force: true });
});

test("it starts servers as the Python package does", () => {
  const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
  const python = read("../../python/src/ringfence/_server.py");
  const ours = read("../src/server.js");
  for (const shared of ["--while-used", "clients.lock", "starting.lock", "RINGFENCE_API_URL", "RINGFENCE_API_KEY", "RINGFENCE_BIN"]) {
    assert.ok(python.includes(shared) && ours.includes(shared), shared);
  }
});
