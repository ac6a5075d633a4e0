import assert from "node:assert/strict";
import { test } from "node:test";

import { Conflict, InvalidArguments, NotFound, Sandbox } from "ringfence";

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

async function until(output, text) {
  let seen = "";
  while (!seen.includes(text)) seen += new TextDecoder().decode((await output.next()).value.data);
  return seen;
}

test("a terminal is left and found again", async () => {
  await inSandbox(async ({ pty, commands }) => {
    const terminal = await pty.create({ command: "stty size; read -r x; stty size; read -r y; exit 5", columns: 65535, rows: 1 });
    const output = terminal.stream();
    await until(output, "1 65535");
    await output.return();
    const again = await commands.connect(terminal.pid);
    const { terminal: isTerminal, end } = await again.info();
    assert.deepEqual([isTerminal, end ?? null], [true, null]);
    await terminal.resize(40, 11);
    await again.sendStdin("x\r");
    await until(again.stream(), "11 40");
    // The character for the end of a file.
    await terminal.sendStdin("\x04");
    const { exitCode, stdout, stderr } = await again.wait();
    assert.deepEqual([exitCode, stderr], [5, ""]);
    assert.ok(stdout.includes("1 65535\r\n"), stdout);
  });
});

test("a key interrupts", async () => {
  await inSandbox(async ({ pty }) => {
    const terminal = await pty.create({ command: "trap 'echo stopped; exit 4' INT; echo ready; while :; do sleep 0.01; done" });
    const output = terminal.stream();
    await until(output, "ready");
    await terminal.sendStdin("\x03");
    await until(output, "stopped");
    assert.equal((await terminal.wait()).exitCode, 4);
  });
});

test("a stream that nobody reads on keeps no timer", async () => {
  await inSandbox(async ({ pty }) => {
    const terminal = await pty.create({ command: "echo ready; read -r x" });
    await terminal.stream().next();
    assert.deepEqual(process.getActiveResourcesInfo().filter((name) => name === "Timeout"), []);
  });
});

test("terminals that are misused", async () => {
  let terminal, pty;
  await inSandbox(async (sandbox) => {
    pty = sandbox.pty;
    terminal = await pty.create({ command: ["cat"] });
    for (const [columns, rows] of [[-1, 24], [65536, 24], [80, 2 ** 40], [80.5, 24], ["wide", 24], [NaN, 24]]) {
      for (const call of [() => terminal.resize(columns, rows), () => pty.create({ columns, rows })]) {
        await assert.rejects(call, (error) => error instanceof InvalidArguments && /columns|rows/.test(error.message));
      }
    }
    await assert.rejects(pty.create({ command: ["no-such-program"] }), NotFound);
    await assert.rejects(terminal.sendStdin(undefined), InvalidArguments);
    await terminal.kill();
    assert.equal((await terminal.wait()).outcome, "cancelled");
    await assert.rejects(terminal.sendStdin("late"), Conflict);
  });
  const calls = [() => pty.create(), () => terminal.resize(80, 24), () => terminal.sendStdin("x"), () => terminal.stream().next(), () => terminal.wait()];
  for (const call of calls) await assert.rejects(call, (error) => error instanceof NotFound && /was removed at .*`Sandbox\.list\(\)` lists/.test(error.message));
});

test("input arrives in the order of the calls", async () => {
  await inSandbox(async ({ commands }) => {
    const cat = await commands.start("cat", { stdin: true });
    let open;
    const gate = new Promise((resolve) => (open = resolve));
    async function* held() {
      yield "1";
      await gate;
      yield "2";
    }
    const calls = [cat.sendStdin(held())];
    await cat.stream().next();
    for (const text of "345678") calls.push(cat.sendStdin(text));
    calls.push(cat.sendStdin("9", { end: true }));
    // Calls that did not wait would be over by now.
    for (const _ of "123") await cat.info();
    open();
    await Promise.all(calls);
    assert.equal((await cat.wait()).stdout, "123456789");
  });
});

test("aborting input leaves the process", async () => {
  await inSandbox(async ({ commands }) => {
    const deaf = await commands.start("read -r line; echo $line", { stdin: true });
    const begun = new AbortController();
    async function* endless() {
      for (;;) {
        yield new Uint8Array(2 ** 16);
        begun.abort();
      }
    }
    const first = deaf.sendStdin("kept\n");
    const stops = [new AbortController(), new AbortController()];
    const endlessCall = deaf.sendStdin(endless(), { signal: stops[0].signal });
    const waiting = deaf.sendStdin("waits", { signal: stops[1].signal });
    await new Promise((resolve) => begun.signal.addEventListener("abort", resolve));
    stops[1].abort(new Error("no turn"));
    await assert.rejects(waiting, /no turn/);
    stops[0].abort(new Error("enough"));
    await assert.rejects(endlessCall, /enough/);
    await first;
    assert.equal((await deaf.wait()).stdout, "kept\n");
    await assert.rejects(deaf.sendStdin("x", { signal: AbortSignal.abort(new Error("before")) }), /before/);
  });
});
