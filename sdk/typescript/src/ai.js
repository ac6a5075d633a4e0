// Tools and a sandbox session for the AI SDK (the package `ai`): its agents run code and commands in a sandbox.

import { tool } from "ai";
import { z } from "zod";

import { sizeOf, unexpected } from "./arguments.js";
import { InvalidArguments, NotFound, RingfenceError, escaped } from "./errors.js";
import { checkOptions } from "./options.js";
import { absolute as placed } from "./paths.js";

const WORKSPACE = "/workspace";
const TIMEOUT = "10m";
const MAX_OUTPUT = 30_000;
const MAX_SESSION_OUTPUT = 2 ** 20;
/** Characters of base64 of all pictures in an answer. */
const MAX_PICTURES = 4 * 2 ** 20;
const MAX_LINKS = 40;
const TIMED_OUT = 124;
const KILLED = 137;
/** Beginnings of pictures, in base64. */
const PICTURES = { "image/png": "iVBORw0KGgo", "image/jpeg": "/9j/" };

const CODE = `Run code in a sandbox that cannot reach this machine. Variables, imports and functions stay for the next call in the same language. \
The value of the last expression, what was printed and PNG or JPEG pictures are returned. Files in ${WORKSPACE} stay.`;
const COMMAND = `Run a command line for the shell in a sandbox that cannot reach this machine. It starts in ${WORKSPACE}, whose files stay; \
also /tmp may be written. A status other than 0 is an answer.`;

/** Returns the tools `runCode` and `runCommand` for `generateText`, `streamText` and agents. */
export function sandboxTools(sandbox, options = {}) {
  checkSandbox(sandbox);
  checkOptions(options, ["timeout", "maxOutput"]);
  const { timeout = TIMEOUT, maxOutput = MAX_OUTPUT } = options;
  const limits = { timeout, maxOutput: sizeOf(maxOutput, "maxOutput") };
  return { runCode: codeTool(sandbox, limits), runCommand: commandTool(sandbox, limits) };
}

function checkSandbox(sandbox) {
  if (!sandbox?.files || !sandbox.commands || typeof sandbox.runCode !== "function") throw unexpected("a `Sandbox`", "sandbox", sandbox);
}

function codeTool(sandbox, { timeout, maxOutput }) {
  return tool({
    description: CODE,
    inputSchema: z.object({
      code: z.string().describe("The program"),
      language: z.enum(["python", "bash", "javascript"]).optional().describe("python unless another is named"),
    }),
    async execute({ code, language = "python" } = {}, { abortSignal } = {}) {
      const ended = await sandbox.runCode(code, { language, timeout, signal: abortSignal });
      const cut = (text) => ended.truncated || text.length > maxOutput;
      const [stdout, stderr] = [ended.logs.stdout.join(""), ended.logs.stderr.join("")];
      const text = ended.text ?? "";
      return {
        ...(text ? { text: text.slice(0, maxOutput) } : {}),
        stdout: stdout.slice(0, maxOutput),
        stderr: stderr.slice(-maxOutput),
        ...(ended.error ? { error: { name: ended.error.name, value: ended.error.value.slice(0, maxOutput) } } : {}),
        outcome: ended.outcome,
        truncated: [text, stdout, stderr].some(cut),
        pictures: pictures(ended.results),
      };
    },
    toModelOutput({ output: { pictures: shown, ...rest } }) {
      if (shown.length === 0) return { type: "json", value: rest };
      const files = shown.map(({ mediaType, data }) => ({ type: "file", mediaType, data: { type: "data", data } }));
      return { type: "content", value: [{ type: "text", text: JSON.stringify(rest) }, ...files] };
    },
  });
}

/** Returns a picture of each result, as far as they fit together. */
function pictures(results) {
  let left = MAX_PICTURES;
  const shown = [];
  for (const { raw } of results) {
    const mediaType = Object.keys(PICTURES).find((media) => String(raw[media] ?? "").startsWith(PICTURES[media]));
    if (mediaType === undefined || raw[mediaType].length > left) continue;
    left -= raw[mediaType].length;
    shown.push({ mediaType, data: raw[mediaType] });
  }
  return shown;
}

function commandTool(sandbox, { timeout, maxOutput }) {
  return tool({
    description: COMMAND,
    inputSchema: z.object({ command: z.string().describe("A line for the shell") }),
    async execute({ command } = {}, { abortSignal } = {}) {
      const ended = await sandbox.commands.run(command, { timeout, maxOutput, signal: abortSignal });
      const { stdout, stderr, outcome, truncated } = ended;
      return { stdout, stderr, exitCode: exitStatus(ended), outcome, truncated };
    },
  });
}

/**
 * A condition for `stopWhen`: the last step failed for another reason than its program. The AI SDK tells the model errors of tools and
 * goes on; what the server or a sandbox that is gone failed at is nothing that a model can mend. Arguments are.
 */
export function sandboxFailed({ steps }) {
  const content = steps.at(-1)?.content ?? [];
  return content.some(({ type, error }) => type === "tool-error" && error instanceof RingfenceError && !(error instanceof InvalidArguments));
}

/** Returns the exit status as a shell has it: 128 + N after the signal N. */
function exitStatus({ outcome, error, exitCode }) {
  if (outcome === "unknown" || outcome === "cancelled") {
    throw new RingfenceError(`the end of the command is ${outcome}: ${escaped(error ?? "something else ended it")}`);
  }
  if (outcome === "timed_out") return TIMED_OUT;
  return exitCode >= 0 ? exitCode : 128 - exitCode;
}

/** Returns a sandbox as the option `experimental_sandbox`, for tools that run commands and use files by it. */
export function sandboxSession(sandbox, options = {}) {
  checkSandbox(sandbox);
  checkOptions(options, ["description", "maxOutput"]);
  const { description = DESCRIPTION } = options;
  const maxOutput = sizeOf(options.maxOutput ?? MAX_SESSION_OUTPUT, "maxOutput");
  return {
    description,
    ...readers(sandbox.files),
    ...writers(sandbox.files),
    ...entries(sandbox.files),
    // Up to this size the server says in the output what it left out; the type has no other place for it.
    run: (options) => run(sandbox, options, Math.min(maxOutput, MAX_SESSION_OUTPUT)),
    spawn: (options) => spawn(sandbox, options),
  };
}

const DESCRIPTION = `A Linux sandbox. Commands start in ${WORKSPACE}, against which relative paths are resolved. Programs may write there, in /tmp and in /output.`;

const absolute = (path) => (path === undefined ? path : placed(path));

const process = ({ workingDirectory, env }) => ({ cwd: absolute(workingDirectory), env });

async function run(sandbox, { command, abortSignal, ...options }, maxOutput) {
  const ended = await sandbox.commands.run(command, { ...process(options), maxOutput, signal: abortSignal });
  return { exitCode: exitStatus(ended), stdout: ended.stdout, stderr: ended.stderr };
}

async function spawn(sandbox, { command, stdin = false, abortSignal, ...options }) {
  abortSignal?.throwIfAborted();
  const handle = await sandbox.commands.start(command, { ...process(options), stdin });
  const kill = async () => {
    await handle.kill();
  };
  const stop = () => kill().catch(() => {});
  abortSignal?.addEventListener("abort", stop, { once: true });
  if (abortSignal?.aborted) await kill();
  const ended = handle.wait({ maxOutput: 0 }).finally(() => abortSignal?.removeEventListener("abort", stop));
  // Nobody need wait for it.
  ended.catch(() => {});
  return {
    pid: handle.pid,
    stdout: outputOf(handle, "stdout"),
    stderr: outputOf(handle, "stderr"),
    async wait() {
      const end = await ended;
      if (end.outcome !== "cancelled") return { exitCode: exitStatus(end) };
      abortSignal?.throwIfAborted();
      return { exitCode: KILLED };
    },
    kill,
    ...(stdin ? { stdin: inputOf(handle) } : {}),
  };
}

/** Output of one kind. Each has a connection of its own, so that an unread one does not block the other. */
function outputOf(handle, stream) {
  let source;
  return new ReadableStream(
    {
      async pull(controller) {
        source ??= handle.stream();
        for (;;) {
          const { done, value } = await source.next();
          if (done) return controller.close();
          if (value.stream === stream) return controller.enqueue(value.data);
        }
      },
      async cancel() {
        await source?.return();
      },
    },
    { highWaterMark: 0 },
  );
}

function inputOf(handle) {
  return new WritableStream({
    write: (piece) => handle.sendStdin(piece),
    close: () => handle.closeStdin(),
    abort: () => handle.closeStdin().catch(() => {}),
  });
}

/** Returns what `work` resolves to, or `fallback` if its file does not exist. A sandbox that is gone says nothing about files. */
async function unlessMissing(work, fallback = null) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof NotFound && error.message.startsWith("no such file or directory")) return fallback;
    throw error;
  }
}

function readers(files) {
  const bytes = ({ path, abortSignal }) => unlessMissing(() => files.read(path, { format: "bytes", signal: abortSignal }));
  return {
    readFile: ({ path, abortSignal }) =>
      unlessMissing(async () => {
        const pieces = files.stream(path, { signal: abortSignal });
        return streamOf(await pieces.next(), pieces);
      }),
    readBinaryFile: bytes,
    async readTextFile({ encoding = "utf-8", startLine, endLine, ...options }) {
      const content = await bytes(options);
      return content && linesOf(new TextDecoder(encoding).decode(content), startLine, endLine);
    },
  };
}

function streamOf(first, rest) {
  let next = first;
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = next ?? (await rest.next());
      next = undefined;
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await rest.return();
    },
  });
}

function linesOf(text, start = 1, end = Infinity) {
  const ending = ["\r\n", "\n", "\r"].find((each) => text.includes(each)) ?? "\n";
  return text.split(ending).slice(Math.max(1, start) - 1, end).join(ending);
}

function writers(files) {
  const write = async ({ path, content, abortSignal }) => {
    await files.write(path, content, { signal: abortSignal });
  };
  return {
    writeFile: write,
    writeBinaryFile: write,
    writeTextFile({ content, encoding = "utf-8", ...options }) {
      if (!Buffer.isEncoding(encoding)) throw new RingfenceError(`there is no encoding ${JSON.stringify(encoding)} for text`);
      return write({ ...options, content: Buffer.from(content, encoding) });
    },
  };
}

const kindOf = ({ type }) => (["file", "directory", "symlink"].includes(type) ? type : "other");

function entries(files) {
  return {
    stat: ({ path }) =>
      unlessMissing(async () => {
        const entry = await followed(files, path);
        return { type: kindOf(entry), size: entry.size };
      }),
    listDirectory: ({ path }) =>
      unlessMissing(async () => (await files.list(path)).map((entry) => ({ name: entry.name, type: kindOf(entry) }))),
    deleteFile: ({ path }) =>
      unlessMissing(async () => {
        if ((await files.stat(path)).type === "directory") throw new RingfenceError(`is a directory: ${path}`);
        await files.remove(path);
        return true;
      }, false),
  };
}

async function followed(files, path) {
  for (let links = 0; links < MAX_LINKS; links += 1) {
    const entry = await files.stat(path);
    if (entry.type !== "symlink") return entry;
    const [directory] = /^.*\//.exec(entry.path);
    path = entry.target.startsWith("/") ? entry.target : directory + entry.target;
  }
  throw new RingfenceError(`too many levels of symbolic links: ${path}`);
}
