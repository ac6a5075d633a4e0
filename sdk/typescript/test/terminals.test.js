import assert from "node:assert/strict";
import { test } from "node:test";

import { Sandbox } from "ringfence";

import { serverForFile } from "../testing/server.js";

const server = serverForFile();

async function inSandbox(work) {
  const sandbox = await Sandbox.create({ socket: server.socket });
  try {
    await work(sandbox);
  } finally {
    await sandbox.kill();
  }
}

test("a stream that nobody reads on keeps no timer", async () => {
  await inSandbox(async ({ pty }) => {
    const terminal = await pty.create({ command: "echo ready; read -r x" });
    await terminal.stream().next();
    assert.deepEqual(process.getActiveResourcesInfo().filter((name) => name === "Timeout"), []);
  });
});
