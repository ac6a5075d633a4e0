// Options of calls. One that a call does not know is refused: a typo would leave what it was meant for at its default.

import { MAX_SHOWN, invalid, nameHint, typeName, wrongOption } from "./arguments.js";

export const CONNECTION = ["url", "apiKey", "socket", "plainHttp", "autostart"];
const PROCESS = ["cwd", "env", "timeout", "user"];
const PRINTED = ["onStdout", "onStderr"];
const SANDBOX = [
  ...["name", "timeout", "memory", "disk", "cpus", "pids", "env", "metadata", "allowedHosts", "runtime"],
  ...["image", "ports", "packages", "snapshot", "fence", "onExpiry"],
];

/** For each call, the number of arguments before its options, and these. Calls that are not here have none. */
export const OPTIONS = {
  Client: {
    run: [1, "language", "timeout", "stdin", "files", "runtime", ...PRINTED, "signal"],
    batch: [1, "signal"],
    callTool: [2, "signal"],
    sandboxEvents: [0, "signal"],
  },
  Sandbox: {
    create: [0, ...SANDBOX, "client", ...CONNECTION, "signal"],
    connect: [1, "client", ...CONNECTION],
    list: [0, "metadata", "client", ...CONNECTION],
    listPage: [0, "limit", "after", "metadata", "client", ...CONNECTION],
    fork: [0, "count", "name"],
    snapshot: [0, "name"],
    events: [0, "signal"],
    runCode: [1, "language", "context", "user", "timeout", ...PRINTED, "onResult", "signal"],
  },
  Files: {
    write: [2, "mode", "signal"],
    read: [1, "format", "signal"],
    stream: [1, "offset", "length", "signal"],
    archive: [1, "signal"],
    extract: [2, "signal"],
    uploadDir: [2, "signal"],
    download: [2, "signal"],
    downloadDir: [2, "maxSize", "includeProtected", "signal"],
    list: [1, "depth"],
    watch: [1, "recursive", "signal"],
  },
  Commands: {
    run: [1, ...PROCESS, ...PRINTED, "maxOutput", "check", "signal"],
    start: [1, ...PROCESS, "stdin"],
  },
  CommandHandle: {
    stream: [0, "signal"],
    wait: [0, ...PRINTED, "maxOutput", "check", "signal"],
    sendStdin: [1, "end", "signal"],
  },
  Pty: { create: [0, "command", "columns", "rows", ...PROCESS] },
  Contexts: { create: [0, "language", "cwd", "user"] },
  Ports: { forward: [1, "host", "localPort", "onError"] },
  Approvals: { list: [0, "past"], answer: [2, "remember"], events: [0, "signal"] },
  Runs: { list: [0, "limit", "before"] },
  Images: { pull: [1, "onProgress", "signal"] },
  Snapshots: {},
  Keys: {},
  Audit: { list: [0, "limit", "tenant", "client", "tool", "outcome", "host"], verify: [0, "head", "host", "signal"] },
};

/** Makes the calls of classes refuse unknown options. */
export function checkCalls(classes) {
  for (const [name, each] of Object.entries(classes)) {
    for (const target of [each, each.prototype]) {
      for (const [call, [position, ...known]] of calls(target, OPTIONS[name])) {
        const value = checked(target[call], position, known);
        Object.defineProperties(value, { name: { value: call }, length: { value: target[call].length } });
        Object.defineProperty(target, call, { value });
      }
    }
  }
}

/** Returns the calls of a class or its instances, with their options. */
export function calls(target, options) {
  const methods = Object.getOwnPropertyNames(target).filter((name) => typeof target[name] === "function" && name !== "constructor");
  const described = methods.map((name) => [name, options[name] ?? [target[name].length]]);
  // Those without arguments are used as callbacks, which are given what they do not look at.
  return described.filter(([, [position, ...known]]) => position > 0 || known.length > 0);
}

function checked(method, position, known) {
  const isLoop = method.constructor.name === "AsyncGeneratorFunction";
  return function (...given) {
    const error = refusal(given[position], known);
    if (!error) return method.apply(this, given);
    if (isLoop) throw error;
    return Promise.reject(error);
  };
}

export function checkOptions(options, known) {
  const error = refusal(options, known);
  if (error) throw error;
}

/** Names the object with the option that a text could be meant for. */
function objectHint(value, first) {
  const isMeant = typeof value === "string" && value.length <= MAX_SHOWN && ["name", "language", "format", "cwd"].includes(first);
  return `pass one such as \`{ ${first}: ${isMeant ? JSON.stringify(value) : "…"} }\``;
}

function refusal(options, known) {
  if (options === undefined) return undefined;
  if (options === null || typeof options !== "object") {
    // `ids.map` passes a number to what has no options.
    if (known.length === 0) return undefined;
    return invalid(`expected an object with options, got ${typeName(options)}`, objectHint(options, known[0]));
  }
  const unknown = Object.keys(options).find((name) => options[name] !== undefined && !known.includes(name));
  if (unknown === undefined) return known.map((name) => wrongOption(name, options[name])).find((error) => error !== undefined);
  const names = known.map((name) => `\`${name}\``).join(", ");
  const message = `unknown option \`${unknown}\`, expected ${known.length > 1 ? `one of ${names}` : names || "none"}`;
  return invalid(message, nameHint(unknown, known));
}
