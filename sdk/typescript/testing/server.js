// A real server for a test, at a socket and at an address of its own.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";

import { Sandbox } from "ringfence";

export const KEY = "a fixed key of any form, 0123456789";

/** Configuration of a server that asks at a tool's time limit. */
export const ASK = "[permissions.tool_limits]\nat_limit = 'ask'\nrun_code_timeout_secs = 0.2\nhard_timeout_secs = 60\n";
/** A program that needs longer than this limit, and ends. Until then, it can be allowed to. */
export const LONG = "import time; time.sleep(3); print('done')";

/** Starts a server before the tests of a file and stops it after them; they must leave no sandbox. Its members are there once it runs. */
export function serverForFile(config) {
  const server = {};
  before(async () => {
    Object.assign(server, await serve(config));
  });
  after(async () => {
    assert.deepEqual(await Sandbox.list({ socket: server.socket }), [], "a test left a sandbox");
    await server.end();
  });
  return server;
}

/** Makes the directories and variables of a user who has no server yet. The test removes them. */
export function world(config = "") {
  const root = mkdtempSync(join(tmpdir(), "s"));
  for (const name of ["run", "state", "config/ringfence"]) mkdirSync(join(root, name), { recursive: true, mode: 0o700 });
  writeFileSync(join(root, "config/ringfence/ringfence.toml"), `[engine]\nlisten = '127.0.0.1:0'\npool_size = 1\n${config}`);
  const env = {
    PATH: process.env.PATH,
    HOME: root,
    XDG_RUNTIME_DIR: join(root, "run"),
    XDG_STATE_HOME: join(root, "state"),
    XDG_CONFIG_HOME: join(root, "config"),
  };
  return { root, env, socket: join(root, "run/ringfence/engine.sock") };
}

/** Starts a server. The test stops it. */
export async function serve(config, ...options) {
  const { root, env, socket } = world(config);
  const child = spawn(process.env.RINGFENCE_BIN, ["serve", "--listen", "127.0.0.1:0", ...options], {
    env: { ...env, RINGFENCE_API_KEY: KEY },
    cwd: root,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  let address;
  let tls;
  for await (const piece of child.stderr.iterator({ destroyOnReturn: false })) {
    log += piece;
    address = /API at (\S+)\n/.exec(log)?.[1];
    tls = /API at (https:\S+)\n/.exec(log)?.[1];
    if (address && (tls || !options.includes("--tls-cert"))) break;
  }
  assert.ok(address, log);
  child.stderr.on("data", (piece) => (log += piece));
  let stopping = false;
  const ended = once(child, "exit").then(([code, signal]) => {
    if (!stopping) console.error(`the server ended by itself: ${code ?? signal}\n${log}`);
    return code;
  });
  return {
    socket,
    url: address.startsWith("http") ? address : `http://${address}`,
    tls,
    env,
    /** Makes a key of the API, as its operator does. */
    key(name, ...options) {
      return execFileSync(process.env.RINGFENCE_BIN, ["keys", "create", name, ...options], { env, encoding: "utf8", stdio: "pipe" }).trim();
    },
    async end(signal = "SIGTERM") {
      stopping = true;
      child.kill(signal);
      const code = await ended;
      rmSync(root, { recursive: true, force: true });
      if (signal === "SIGTERM") assert.equal(code, 0, log);
    },
  };
}
