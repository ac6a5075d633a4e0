// `ringfence/ai` with the real AI SDK, its mock of a model, and a real server. A test of the workspace runs it where the package,
// `ai` and `zod` are installed beside each other.

import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import { generateText, isStepCount, tool } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { Client, InvalidArguments, NotFound, Sandbox } from "ringfence";
import { sandboxFailed, sandboxSession, sandboxTools } from "ringfence/ai";
import { z } from "zod";

import { serve } from "./server.js";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

let server;
let sandbox;
before(async () => {
  server = await serve();
  sandbox = await Sandbox.create({ socket: server.socket });
});
after(async () => {
  await sandbox.kill();
  await server.end();
});

const usage = { inputTokens: {}, outputTokens: {} };

/** A model that makes these calls, one in each step, and then says that it is done. */
function script(...calls) {
  const steps = calls.map(([toolName, input], step) => ({
    content: [{ type: "tool-call", toolCallId: `call-${step}`, toolName, input: JSON.stringify(input) }],
    finishReason: { unified: "tool-calls" },
    usage,
    warnings: [],
  }));
  const end = { content: [{ type: "text", text: "Done." }], finishReason: { unified: "stop" }, usage, warnings: [] };
  return new MockLanguageModelV4({ doGenerate: [...steps, end] });
}

/** Returns what the model was told of each call. */
async function told(model, options) {
  const ended = await generateText({ model, prompt: "Go.", stopWhen: isStepCount(9), ...options });
  const last = model.doGenerateCalls.at(-1).prompt;
  const results = last.filter(({ role }) => role === "tool").flatMap(({ content }) => content);
  return { ended, outputs: results.map(({ output }) => output) };
}

test("arguments are checked, and those of a model can be mended", async () => {
  for (const [make, expected] of [
    [() => sandboxTools("lab"), /a `Sandbox` for `sandbox`, got "lab"/],
    [() => sandboxSession(undefined), /a `Sandbox` for `sandbox`, got undefined/],
    [() => sandboxTools(sandbox, { timeout: NaN }), /for `timeout`, got NaN/],
    [() => sandboxTools(sandbox, { maxOutput: "much" }), /for `maxOutput`, got "much"/],
  ]) {
    assert.throws(make, (error) => error instanceof InvalidArguments && expected.test(error.message));
  }
  const { runCode, runCommand } = sandboxTools(sandbox);
  assert.equal((await runCommand.execute({ command: "echo x" })).stdout, "x\n");
  for (const call of [runCommand.execute({}), runCommand.execute({ command: 5 }), runCode.execute({}), runCode.execute()]) {
    await assert.rejects(call, InvalidArguments);
  }
  const { ended } = await told(script(["runCommand", { command: "echo \0" }], ["runCommand", { command: "echo on" }]), {
    tools: sandboxTools(sandbox),
    stopWhen: [isStepCount(9), sandboxFailed],
  });
  assert.equal(ended.text, "Done.");
});

test("an agent runs code and commands, and gets their answers", async () => {
  const model = script(
    ["runCommand", { command: "echo x,y > data.csv; echo 1,2 >> data.csv; exit 3" }],
    ["runCode", { code: "rows = open('data.csv').read().split()\nprint('read')\nlen(rows)" }],
    ["runCode", { code: "rows[9]" }],
    ["runCode", { code: "echo $((6 * 7)); kill -9 $$", language: "bash" }],
    ["runCommand", { command: "kill -9 $$" }],
    ["runCode", { code: "1", language: "cobol" }],
  );
  const { ended, outputs } = await told(model, { tools: sandboxTools(sandbox) });
  assert.equal(ended.text, "Done.");
  const [made, read, wrong, shell, killed, refused] = outputs.map(({ value }) => value);
  const nothing = { stdout: "", stderr: "", truncated: false };
  assert.deepEqual(made, { ...nothing, exitCode: 3, outcome: "exited" });
  assert.deepEqual(read, { ...nothing, text: "2", stdout: "read\n", outcome: "exited" });
  assert.deepEqual(wrong.error, { name: "IndexError", value: "list index out of range" });
  assert.deepEqual([shell.stdout, shell.error.name], ["42\n", shell.outcome]);
  assert.deepEqual([killed.exitCode, killed.outcome], [137, "signalled"]);
  assert.match(JSON.stringify(refused), /language/);
  const [{ tools }] = model.doGenerateCalls;
  assert.deepEqual(tools.map(({ name, inputSchema }) => [name, inputSchema.required]), [["runCode", ["code"]], ["runCommand", ["command"]]]);
});

test("a picture is a file for the model, and what is too long is cut", async () => {
  const png = "class P:\n  def __init__(self, data): self.data = data\n  def _repr_png_(self): return self.data\n";
  const code = `import base64\n${png}display(P(b'none'))\nprint('x' * 100)\nP(base64.b64decode('${PNG}'))`;
  const tools = sandboxTools(sandbox, { maxOutput: 10, timeout: 1 });
  const late = "while True: pass";
  const { outputs } = await told(script(["runCode", { code }], ["runCode", { code: late }], ["runCommand", { command: "sleep 600" }]), { tools });
  const [shown, interrupted, killed] = outputs;
  assert.equal(shown.type, "content");
  assert.equal(shown.value.length, 2);
  const [text, file] = shown.value;
  const { stdout, truncated } = JSON.parse(text.text);
  assert.deepEqual([stdout, truncated], ["x".repeat(10), true]);
  assert.deepEqual([file.type, file.mediaType, file.data.data ?? file.data], ["file", "image/png", PNG]);
  assert.deepEqual([interrupted.value.outcome, killed.value.outcome, killed.value.exitCode], ["timed_out", "timed_out", 124]);
});

test("a sandbox that is gone stops the agent, and is no answer of a program", async () => {
  const gone = await Sandbox.create({ socket: server.socket });
  await gone.kill();
  const model = script(["runCommand", { command: "true" }], ["runCode", { code: "1" }]);
  const ended = await generateText({ model, prompt: "Go.", tools: sandboxTools(gone), stopWhen: [isStepCount(9), sandboxFailed] });
  assert.equal(model.doGenerateCalls.length, 1);
  const [, failed] = ended.steps.at(-1).content;
  assert.ok(failed.type === "tool-error" && failed.error instanceof NotFound, failed);
});

test("aborting the agent kills its command", async () => {
  const abort = new AbortController();
  const running = generateText({
    model: script(["runCommand", { command: "sleep 600" }]),
    prompt: "Go.",
    tools: sandboxTools(sandbox),
    abortSignal: abort.signal,
  });
  let process;
  while (!process) process = (await sandbox.commands.list()).find(({ command, end }) => command.join(" ").includes("sleep 600") && !end);
  abort.abort();
  await running.catch(() => {});
  assert.equal((await (await sandbox.commands.connect(process.pid)).wait()).outcome, "cancelled");
});

test("a tool uses the session", async () => {
  const wordCount = tool({
    inputSchema: z.object({ text: z.string() }),
    async execute({ text }, { experimental_sandbox: session, abortSignal }) {
      await session.writeTextFile({ path: "words", content: text });
      return (await session.run({ command: "wc -w < words", abortSignal })).stdout.trim();
    },
  });
  const options = { tools: { wordCount }, experimental_sandbox: sandboxSession(sandbox) };
  const { outputs } = await told(script(["wordCount", { text: "one two three" }]), options);
  assert.equal(outputs[0].value, "3");
});

test("the session's files", async () => {
  const session = sandboxSession(sandbox);
  await session.writeTextFile({ path: "d/e/lines", content: "1\n2\né\n4" });
  assert.equal(await session.readTextFile({ path: "/workspace/d/e/lines", startLine: 2, endLine: 3 }), "2\né");
  assert.equal(await session.readTextFile({ path: "d/e/lines", startLine: 4, endLine: 99 }), "4");
  await session.writeTextFile({ path: "latin", content: "é", encoding: "latin1" });
  assert.deepEqual(await session.readBinaryFile({ path: "latin" }), new Uint8Array([0xe9]));
  assert.equal(await session.readTextFile({ path: "latin", encoding: "latin1" }), "é");
  await session.writeFile({ path: "bytes", content: new Blob([new Uint8Array(300_000)]).stream() });
  const pieces = await session.readFile({ path: "bytes" });
  assert.equal((await new Response(pieces).arrayBuffer()).byteLength, 300_000);
  await session.writeBinaryFile({ path: "empty", content: new Uint8Array() });
  assert.equal((await new Response(await session.readFile({ path: "empty" })).arrayBuffer()).byteLength, 0);
  for (const name of ["readFile", "readBinaryFile", "readTextFile", "stat", "listDirectory"]) {
    assert.equal(await session[name]({ path: "nothing" }), null, name);
  }
  await session.run({ command: "ln -s ../latin d/link; ln -s link d/link2; ln -s loop loop; mkfifo d/pipe" });
  assert.deepEqual(await session.stat({ path: "d/link2" }), { type: "file", size: 1 });
  assert.equal((await session.stat({ path: "d" })).type, "directory");
  assert.equal((await session.stat({ path: "d/pipe" })).type, "other");
  await assert.rejects(session.stat({ path: "loop" }), /symbolic links/);
  const listed = await session.listDirectory({ path: "d" });
  assert.deepEqual(listed.map(({ name, type }) => `${name} ${type}`).sort(), ["e directory", "link symlink", "link2 symlink", "pipe other"]);
  await assert.rejects(session.listDirectory({ path: "latin" }));
  await assert.rejects(session.writeTextFile({ path: "d", content: "x" }));
  await assert.rejects(session.deleteFile({ path: "d" }), /is a directory/);
  assert.deepEqual([await session.deleteFile({ path: "d/link" }), await session.deleteFile({ path: "d/link" })], [true, false]);
  assert.equal((await session.stat({ path: "latin" })).size, 1);
});

test("the session's processes", async () => {
  const session = sandboxSession(sandbox, { maxOutput: 20 });
  const ran = await session.run({ command: "pwd; echo $N >&2; kill -TERM $$", workingDirectory: "d", env: { N: "1" } });
  assert.deepEqual(ran, { exitCode: 143, stdout: "/workspace/d\n", stderr: "1\n" });
  assert.match((await session.run({ command: "seq 100" })).stdout, /^1\n2\n[^]*bytes left out[^]*100\n$/);
  const cat = await session.spawn({ command: "cat; echo end >&2; exit 4", stdin: true });
  const text = (stream) => new Response(stream).text();
  const writer = cat.stdin.getWriter();
  const [stdout, stderr] = [text(cat.stdout), text(cat.stderr)];
  await writer.write(new TextEncoder().encode("in\n"));
  await writer.close();
  assert.deepEqual([await stdout, await stderr, await cat.wait()], ["in\n", "end\n", { exitCode: 4 }]);
  // What nobody reads holds up nothing.
  const loud = await session.spawn({ command: "head -c 3000000 /dev/zero; echo end >&2" });
  assert.deepEqual([await text(loud.stderr), loud.stdin], ["end\n", undefined]);
  const sleeper = await session.spawn({ command: "sleep 600" });
  await sleeper.kill();
  await sleeper.kill();
  assert.deepEqual(await sleeper.wait(), { exitCode: 137 });
  const abort = new AbortController();
  const aborted = await session.spawn({ command: "sleep 600", abortSignal: abort.signal });
  abort.abort(new Error("enough"));
  await assert.rejects(aborted.wait(), /enough/);
});

test("the example", async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ["ai_agent.mjs"], { env: server.env });
  assert.equal(stdout, "2 rows, x sums to 4\n");
  assert.equal((await Sandbox.list({ client: new Client({ socket: server.socket }) })).length, 1);
});

test("the guide prints what it says", () => {
  const guide = readFileSync("adapters.md", "utf8");
  const program = Array.from(guide.matchAll(/^```js\n(.*?)^```/gms), ([, block]) => block).join("\n");
  const expected = Array.from(program.matchAll(/^\/\/> (.*)$/gm), ([, line]) => line);
  assert.ok(expected.length > 0);
  const ran = spawnSync(process.execPath, ["--input-type=module", "--eval", program], { env: server.env, encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stderr);
  assert.deepEqual(ran.stdout.trim().split("\n"), expected);
});
