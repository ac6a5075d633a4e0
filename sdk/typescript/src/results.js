// Values of answers, in JavaScript's spelling. Members that a newer server adds are kept.

import { IncompatibleServer } from "./errors.js";
import { fromBase64 } from "./transport.js";

/** Returns an object with names in camel case; the values under `opaque` names are left as they are. */
export function camel(data, required, opaque = []) {
  if (data === null || typeof data !== "object" || Array.isArray(data)) {
    throw new IncompatibleServer("expected an object in the server's answer");
  }
  for (const name of required) {
    if (!Object.hasOwn(data, name)) throw new IncompatibleServer(`the server's answer lacks \`${name}\``);
  }
  const entries = Object.entries(data).map(([name, value]) => {
    const spelled = name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());
    const inner = !opaque.includes(name) && value !== null && typeof value === "object" && !Array.isArray(value);
    return [spelled, inner ? camel(value, []) : value];
  });
  return Object.fromEntries(entries);
}

export const sandboxInfo = (data) =>
  camel(data, ["id", "runtime", "state", "created_at", "expires_at"], ["metadata"]);
export const entryInfo = (data) => camel(data, ["name", "path", "type"]);
export const processInfo = (data) => camel(data, ["pid"]);
export const contextInfo = (data) => camel(data, ["id", "language"]);
export function runResult(data) {
  const found = camel(data, ["stdout", "stderr", "exit_code", "duration", "meta"]);
  return { ...found, truncated: found.meta.truncated ?? false, warnings: found.meta.warnings ?? [] };
}
export const snapshotInfo = (data) =>
  camel(data, ["id", "sandbox", "created_at", "size", "memory_limit", "disk_limit"], ["template"]);
export const lifeEvent = (data) => camel(data, ["type"]);
export const runSummary = (data) => camel(data, ["id", "time", "language", "outcome", "exit_code"]);
export const storedRun = (data) => ({
  ...camel(data, ["id", "time", "language", "code", "result"], ["result"]),
  result: runResult(data.result),
});
export const image = (data) => camel(data, ["references", "digest", "content", "process"], ["process"]);

export function approval(data) {
  const found = camel(data, ["id", "kind", "text", "remember", "digest", "state"]);
  if (!Array.isArray(data.text)) throw new IncompatibleServer("expected pieces of text in a question");
  return { ...found, text: data.text.flatMap((piece) => Object.values(piece)).join(""), pieces: data.text };
}
export const commandEnd = (data) => camel(data, ["exit_code", "outcome"]);

const TEXTS = {
  "text/plain": "text",
  "text/html": "html",
  "text/markdown": "markdown",
  "image/svg+xml": "svg",
  "text/latex": "latex",
  "application/javascript": "javascript",
  "application/json": "json",
  "application/vnd.ringfence.data+json": "data",
  "application/vnd.ringfence.chart+json": "chart",
};
const BINARIES = { "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf" };

function result(data) {
  const found = { isMainResult: Boolean(data.main), raw: data.data ?? {}, omitted: data.omitted ?? {} };
  for (const [media, value] of Object.entries(found.raw)) {
    if (Object.hasOwn(TEXTS, media)) found[TEXTS[media]] = value;
    if (Object.hasOwn(BINARIES, media)) found[BINARIES[media]] = fromBase64(value);
  }
  // `console.log` of Node.js: a picture has megabytes, and `raw` has them again.
  return Object.defineProperty(found, Symbol.for("nodejs.util.inspect.custom"), { value: inspected });
}

function inspected(_, options, inspect) {
  const shown = { ...this, raw: Object.keys(this.raw) };
  for (const name of Object.values(BINARIES)) if (shown[name]) shown[name] = `<${shown[name].length} bytes>`;
  return inspect(shown, { ...options, maxStringLength: 200 });
}

export function execution(data, stdout, stderr, truncated) {
  const ended = camel(data, ["outcome", "exit_code"], ["results"]);
  const results = (data.results ?? []).map(result);
  let main = results.find((each) => each.isMainResult);
  if (main === undefined && typeof data.value === "string") {
    main = result({ main: true, data: { "text/plain": data.value } });
    results.push(main);
  }
  const warnings = data.warnings ?? [];
  return {
    results,
    text: main?.text,
    logs: { stdout, stderr },
    error: executionError(ended, stderr.join(""), warnings),
    executionCount: ended.executionCount ?? 0,
    outcome: ended.outcome,
    exitCode: ended.exitCode,
    duration: ended.duration ?? 0,
    truncated,
    interrupted: ended.interrupted ?? false,
    contextEnded: ended.contextEnded ?? false,
    warnings,
  };
}

function executionError({ outcome, exitCode }, stderr, warnings) {
  if (outcome !== "exited") return { name: outcome, value: warnings.join("; "), traceback: stderr };
  if (exitCode === 0) return undefined;
  return printed(stderr) ?? { name: "exit status", value: String(exitCode), traceback: stderr };
}

// An error of syntax has no frames, and an exception group stands in a box.
const BEGINNING = /^(?:( {2}\+ Exception Group )?Traceback \(most recent call last\):|  File "<cell )/gm;
const BOX = "  | ";

/** Returns the last exception of Python or JavaScript that an interpreter printed, if there is one. */
function printed(stderr) {
  const beginnings = [...stderr.matchAll(BEGINNING)];
  const last = beginnings.findLast(([text]) => text.includes("Traceback")) ?? beginnings.at(-1);
  if (last) return raised(stderr.slice(last.index), last[1] !== undefined);
  const uncaught = [...stderr.matchAll(/^Uncaught /gm)].at(-1);
  return uncaught && thrown(stderr.slice(uncaught.index + uncaught[0].length));
}

function raised(traceback, isGroup) {
  let all = traceback.replace(/\n+$/, "").split("\n");
  if (isGroup) all = [all[0], ...all.filter((line) => line.startsWith(BOX)).map((line) => line.slice(BOX.length))];
  // The message may have many lines; the frames before it are indented.
  const first = all.findIndex((line, at) => at > 0 && line !== "" && !line.startsWith(" "));
  const message = all.slice(first < 0 ? -1 : first).join("\n");
  const colon = message.indexOf(": ");
  return colon < 0
    ? { name: message, value: "", traceback }
    : { name: message.slice(0, colon), value: message.slice(colon + 2), traceback };
}

function thrown(traceback) {
  const [message] = traceback.replace(/\n+$/, "").split("\n    at ");
  // Anything can be thrown.
  const [, name, value] = /^([A-Za-z_$][\w$]*): ([^]*)$/.exec(message) ?? [, "Error", message];
  return { name, value, traceback };
}

/** The text of a stream so far, up to a number of characters. */
export class Kept {
  #decoder = new TextDecoder();
  #left;
  #callback;
  pieces = [];
  truncated = false;

  constructor(limit, callback) {
    this.#left = limit;
    this.#callback = callback;
  }

  /** Adds output, and waits for the callback. */
  async push(bytes) {
    await this.#add(this.#decoder.decode(bytes, { stream: true }));
  }

  async end() {
    await this.#add(this.#decoder.decode());
    return this.pieces.join("");
  }

  async #add(text) {
    if (text === "") return;
    await this.#callback?.(text);
    const kept = text.slice(0, this.#left);
    this.truncated ||= kept.length < text.length;
    this.#left -= kept.length;
    if (kept) this.pieces.push(kept);
  }
}
