import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client } from "ringfence";

import { ASK, LONG, serve } from "../testing/server.js";

const guide = readFileSync(new URL("../../../docs/guide/typescript.md", import.meta.url), "utf8");

test("the guide prints what it says", async () => {
  const server = await serve();
  const blocks = Array.from(guide.matchAll(/^```js\n(.*?)^```/gms), ([, block]) => block);
  assert.ok(blocks.length >= 11);
  const program = blocks.join("\n");
  const expected = Array.from(program.matchAll(/^\/\/> (.*)$/gm), ([, line]) => line);
  // It makes a directory where it runs.
  const cwd = server.env.HOME;
  mkdirSync(join(cwd, "node_modules"));
  symlinkSync(fileURLToPath(new URL("..", import.meta.url)), join(cwd, "node_modules/ringfence"));
  const ran = spawnSync(process.execPath, ["--input-type=module", "--eval", program], {
    cwd,
    env: { ...server.env, PATH: `${dirname(process.env.RINGFENCE_BIN)}:${server.env.PATH}` },
    encoding: "utf8",
  });
  assert.equal(ran.status, 0, ran.stderr);
  assert.deepEqual(ran.stdout.trim().split("\n"), expected);
  await server.end();
});

test("the program of the guide answers questions", async () => {
  const server = await serve(ASK);
  const [, program] = /^```javascript\n(.*?)^```/ms.exec(guide);
  const answering = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: new URL("..", import.meta.url),
    env: server.env,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const client = new Client({ socket: server.socket });
  let shown = "";
  let prompts = 0;
  answering.stdout.setEncoding("utf8").on("data", async (text) => {
    shown += text;
    const code = /(\w{6}) to approve: $/.exec(shown)?.[1];
    if (!code) return;
    prompts += 1;
    if (prompts === 2) await client.approvals.answer((await client.approvals.list())[0], true);
    shown += "\n";
    answering.stdin.write(prompts === 1 ? "y\n" : `${code}\n`);
  });
  // Nobody is asked before it follows; the first answer is "y", and the second comes from elsewhere.
  const lookalike = `${LONG} # \u0430`;
  while ((await client.run(lookalike)).meta.outcome === "timed_out");
  assert.equal((await client.run(lookalike)).meta.outcome, "exited");
  const questions = await client.approvals.list({ past: true });
  assert.deepEqual(questions.map(({ state }) => state), ["approved", "approved", "rejected"], shown);
  assert.equal(shown.split("it was answered elsewhere").length, 2, shown);
  assert.ok(shown.includes(`! ${questions[0].foreign}`), shown);
  for (const line of questions[0].text.split("\n")) assert.ok(shown.includes(`| ${line}\n`), shown);
  answering.kill("SIGKILL");
  await server.end();
});
