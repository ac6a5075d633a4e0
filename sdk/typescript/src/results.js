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
export const runResult = (data) => camel(data, ["stdout", "stderr", "exit_code", "duration", "meta"]);
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
  return found;
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
  const start = stderr.lastIndexOf("Traceback (most recent call last):");
  if (start < 0) return { name: "exit status", value: String(exitCode), traceback: stderr };
  const traceback = stderr.slice(start);
  const all = traceback.replace(/\n+$/, "").split("\n");
  // The message may have many lines; the frames before it are indented.
  const first = all.findIndex((line, at) => at > 0 && line !== "" && !line.startsWith(" "));
  const message = all.slice(first < 0 ? -1 : first).join("\n");
  const colon = message.indexOf(": ");
  return colon < 0
    ? { name: message, value: "", traceback }
    : { name: message.slice(0, colon), value: message.slice(colon + 2), traceback };
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

  push(bytes) {
    this.#add(this.#decoder.decode(bytes, { stream: true }));
  }

  end() {
    this.#add(this.#decoder.decode());
    return this.pieces.join("");
  }

  #add(text) {
    if (text === "") return;
    this.#callback?.(text);
    const kept = text.slice(0, this.#left);
    this.truncated ||= kept.length < text.length;
    this.#left -= kept.length;
    if (kept) this.pieces.push(kept);
  }
}
