// The package's door: sandboxes, programs that run once, tools.

import { Audit, Keys, usageReport } from "./administration.js";
import { invalid, languageOf, numberOf, programsOf, sizeOf, texts, unexpected } from "./arguments.js";
import { sized } from "./body.js";
import { CommandHandle, Commands, Pty } from "./commands.js";
import { IncompatibleServer, LimitExceeded, NotFound, RingfenceError, ServerGone, ServerUnavailable, ofBody } from "./errors.js";
import { lifeOfOne, livesOfAll } from "./life.js";
import { Approvals, Images, Runs, Snapshots } from "./operations.js";
import { CONNECTION, checkCalls, checkOptions } from "./options.js";
import { absolute, segment } from "./paths.js";
import { Ports } from "./ports.js";
import { Kept, contextInfo, entryInfo, execution, runResult, sandboxInfo, snapshotInfo } from "./results.js";
import { Transport, VERSION, lines, output, whole } from "./transport.js";

export {
  ApiError,
  ApprovalTimeout,
  BY_TYPE,
  Blocked,
  Busy,
  Cancelled,
  CommandFailed,
  Conflict,
  DeadlineExceeded,
  InProgress,
  IncompatibleServer,
  InternalError,
  InvalidArguments,
  LimitExceeded,
  MethodNotAllowed,
  NotFound,
  NotSupported,
  PermissionDenied,
  Rejected,
  RingfenceError,
  RuntimeUnavailable,
  ServerGone,
  ServerUnavailable,
  Unauthenticated,
} from "./errors.js";
export { VERSION };

const MAX_CODE_OUTPUT = 8 * 2 ** 20;
/** Bytes of a directory that come out of a sandbox, unless others are allowed: a hole of a terabyte costs it nothing. */
const MAX_TREE = 4 * 2 ** 30;

/** A connection to a server: that of `url` or `socket`, else of RINGFENCE_API_URL, else the one of this user, which is started if none runs. */
export class Client {
  constructor(options = {}) {
    checkOptions(options, CONNECTION);
    this.transport = new Transport(options);
    this.approvals = new Approvals(this.transport);
    this.audit = new Audit(this.transport);
    this.images = new Images(this.transport);
    this.keys = new Keys(this.transport);
    this.runs = new Runs(this.transport);
    this.snapshots = new Snapshots(this.transport);
  }

  async run(code, { language = "python", timeout, stdin, files, runtime, onStdout, onStderr, signal } = {}) {
    const json = { code, language: languageOf(language), timeout, stdin, files, runtime };
    if (!onStdout && !onStderr) return runResult(await this.transport.json("POST", "/run", { json, signal, endsWithCall: true }));
    for await (const event of this.transport.events("POST", "/run", { json, signal })) {
      if (event.name === "stdout") await onStdout?.(event.data.text);
      else if (event.name === "stderr") await onStderr?.(event.data.text);
      else if (event.name === "result") return runResult(event.data);
    }
    throw new ServerGone("the stream of events ended before the result");
  }

  async *batch(programs, { signal } = {}) {
    const runs = programsOf(programs);
    const left = new Set(runs.keys());
    const response = await this.transport.send("POST", "/batch", { json: { runs }, signal });
    for await (const line of lines(response.body)) {
      if (typeof line?.index !== "number") throw new IncompatibleServer("a line of the batch has no index");
      left.delete(line.index);
      yield line.result
        ? { index: line.index, result: runResult(line.result) }
        : { index: line.index, error: ofBody(line, { status: 200 }) };
    }
    if (left.size) throw new ServerGone(`the answer ended before ${left.size} of ${runs.length} programs did`);
  }

  async tools() {
    const { tools = [] } = await this.transport.json("GET", "/tools");
    return tools.map(({ input_schema: inputSchema, output_schema: outputSchema, ...rest }) => ({
      ...rest,
      inputSchema,
      outputSchema: outputSchema ?? undefined,
    }));
  }

  async callTool(name, args = {}, { signal } = {}) {
    return await this.transport.json("POST", `/tools/${segment(name, "name")}`, { json: args, signal, endsWithCall: true });
  }

  async usage() {
    return usageReport(await this.transport.json("GET", "/usage"));
  }

  async sandboxEvents({ signal } = {}) {
    return await livesOfAll(this.transport, { signal });
  }
}

/** Runs a program once. */
export async function run(code, options = {}) {
  return await new Client().run(code, options);
}

class Files {
  #transport;
  #base;

  constructor(transport, base) {
    this.#transport = transport;
    this.#base = `${base}/files`;
  }

  async write(path, data, { mode, signal } = {}) {
    const { content, size } = sized(data);
    const params = { path: absolute(path), size, mode: mode === undefined ? undefined : numberOf(mode, "mode").toString(8) };
    return entryInfo(await this.#transport.json("PUT", this.#base, { params, content, signal }));
  }

  async read(path, { format = "text", signal } = {}) {
    if (!["text", "bytes"].includes(format)) throw unexpected('"text" or "bytes"', "format", format);
    const content = await whole(await this.#open(path, { signal }), Infinity);
    if (format === "bytes") return content;
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    } catch (cause) {
      throw new RingfenceError(`${path} is no text in UTF-8`, 'pass `{ format: "bytes" }`', { cause });
    }
  }

  async *stream(path, options = {}) {
    yield* await this.#open(path, options);
  }

  async download(path, to, { signal } = {}) {
    const { localPath, newFile } = await import("./local.js");
    return await newFile(localPath(to, "to"), this.stream(path, { signal }));
  }

  async #open(path, { offset, length, signal }) {
    const params = { path: absolute(path), offset, length };
    return (await this.#transport.send("GET", this.#base, { params, signal })).body;
  }

  async *archive(path = "/workspace", { signal } = {}) {
    const params = { path: absolute(path) };
    yield* (await this.#transport.send("GET", `${this.#base}/archive`, { params, signal })).body;
  }

  async extract(path, data, { signal } = {}) {
    const params = { path: absolute(path) };
    const { content } = sized(data);
    return await this.#transport.json("PUT", `${this.#base}/archive`, { params, content, signal });
  }

  async uploadDir(source, path, options) {
    const [{ packed }, { localPath }] = await Promise.all([import("./pack.js"), import("./local.js")]);
    const archive = await packed(localPath(source, "source"));
    try {
      return await this.extract(path, archive, options);
    } finally {
      // A file may be open, and a refused body is read no further.
      await archive.return();
    }
  }

  async downloadDir(path, to, { maxSize = MAX_TREE, includeProtected = false, signal } = {}) {
    const [{ unpacked }, { localPath }] = await Promise.all([import("./unpack.js"), import("./local.js")]);
    const [target, bytes] = [localPath(to, "to"), sizeOf(maxSize, "maxSize")];
    if ((await this.stat(path)).type === "file") throw new RingfenceError(`${path} is a file`, "use `download`");
    return await unpacked(this.archive(path, { signal }), target, bytes, { includeProtected });
  }

  async list(path = "/workspace", { depth = 1 } = {}) {
    const entries = [];
    let page = { next: undefined };
    do {
      page = await this.listPage(path, { depth, after: page.next });
      for (const entry of page.entries) entries.push(entry);
    } while (page.next !== undefined);
    if (!page.complete) {
      const hint = depth === 1 ? "list it with `commands.run`, such as `find . -maxdepth 1`, or copy it with `downloadDir`" : "ask for fewer levels";
      const message = `the listing of ${path} is not complete with its ${entries.length} entries`;
      throw new LimitExceeded("limit_exceeded", message, hint);
    }
    return entries;
  }

  async listPage(path = "/workspace", { depth = 1, after } = {}) {
    if (!(depth >= 1)) throw unexpected("a number of levels of at least 1", "depth", depth);
    const params = { path: absolute(path), depth, after };
    const { entries = [], complete = true, next } = await this.#transport.json("GET", `${this.#base}/list`, { params });
    return { entries: entries.map(entryInfo), complete, next };
  }

  async stat(path) {
    return entryInfo(await this.#transport.json("GET", `${this.#base}/stat`, { params: { path: absolute(path) } }));
  }

  async exists(path) {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      // A sandbox that is gone says nothing about its files.
      if (error instanceof NotFound && error.message.startsWith("no such file or directory")) return false;
      throw error;
    }
  }

  async makeDir(path) {
    await this.#transport.json("POST", `${this.#base}/mkdir`, { json: { path: absolute(path) } });
  }

  async move(from, to) {
    const json = { from: absolute(from), to: absolute(to) };
    return entryInfo(await this.#transport.json("POST", `${this.#base}/move`, { json }));
  }

  async copy(from, to) {
    const json = { from: absolute(from), to: absolute(to) };
    await this.#transport.json("POST", `${this.#base}/copy`, { json });
  }

  async remove(path) {
    await this.#transport.json("DELETE", this.#base, { params: { path: absolute(path) } });
  }

  /** Resolves once the directory is watched, to its changes from then on. */
  async watch(path = "/workspace", { recursive = false, signal } = {}) {
    const params = { path: absolute(path), recursive };
    const events = this.#transport.events("GET", `${this.#base}/watch`, { params, signal });
    const first = await events.next();
    if (first.done) throw new ServerGone("the directory is watched no more");
    return changes(events);
  }
}

async function* changes(events) {
  try {
    for await (const event of events) if (event.name === "change") yield event.data;
  } finally {
    await events.return();
  }
  throw new ServerGone("the directory is watched no more: its sandbox or the server has ended");
}

const idOf = (context) => segment(typeof context === "object" ? context?.id : context, "context");

class Contexts {
  #transport;
  #base;

  constructor(transport, base) {
    this.#transport = transport;
    this.#base = `${base}/contexts`;
  }

  async create({ language = "python", cwd, user } = {}) {
    return contextInfo(await this.#transport.json("POST", this.#base, { json: { language: languageOf(language), cwd, user } }));
  }

  async list() {
    const { contexts = [] } = await this.#transport.json("GET", this.#base);
    return contexts.map(contextInfo);
  }

  async remove(context) {
    await this.#transport.json("DELETE", `${this.#base}/${idOf(context)}`);
  }

  async interrupt(context) {
    await this.#transport.json("POST", `${this.#base}/${idOf(context)}/interrupt`);
  }
}

function checkPackages(packages) {
  if (packages === undefined) return;
  const isKey = (text) => /^[0-9a-f]{64}$/.test(text);
  const all = [packages].flat();
  if (all.every(isKey)) return;
  const isNpm = (name) => `${name}`.trim().startsWith("npm:");
  const commands = [
    ["-c pass", "--with", all.filter((name) => !isNpm(name))],
    ["-c 0", "-l javascript --with", all.filter(isNpm)],
  ].flatMap(([code, option, names]) => (names.length === 0 ? [] : [`\`ringfence run ${option} ${names.join(",")} ${code}\``]));
  throw invalid(
    `expected a key of kept packages for \`packages\`, or a list of keys, got ${JSON.stringify(packages)}`,
    `run ${commands.join(" and ")}, and pass the id that \`ringfence packages ls --json\` prints`,
  );
}

/** Returns the client that the caller names, or a new one. */
function clientOf(client, connection) {
  if (client === undefined || client === null) return new Client(connection);
  if (!(client instanceof Client)) throw unexpected("a `Client`", "client", client);
  const other = Object.keys(connection).find((name) => connection[name] !== undefined);
  if (other !== undefined) throw invalid(`\`client\` and \`${other}\` exclude each other`, "pass one of them");
  return client;
}

const selected = (metadata) => Object.fromEntries(Object.entries(metadata ?? {}).map(([name, value]) => [`metadata.${name}`, value]));

/** Lists sandboxes: all, or with `limit` a page. */
async function page(params, client, connection) {
  const { transport } = clientOf(client, connection);
  const { sandboxes = [], next } = await transport.json("GET", "/sandboxes", { params });
  return { sandboxes: sandboxes.map(sandboxInfo), next: next ?? undefined };
}

/** A sandbox, which stays until it is killed, its time is up, or the server ends. */
export class Sandbox {
  #client;
  #transport;
  #base;

  /** `Sandbox.create` and `Sandbox.connect` make objects of this class. */
  constructor(client, info, transport) {
    if (!(client instanceof Client)) throw invalid("a sandbox is not made with `new`", "use `await Sandbox.create()`, or `Sandbox.connect(id)`");
    this.#client = client;
    this.#transport = transport;
    this.#base = `/sandboxes/${segment(info.id)}`;
    this.sandboxId = info.id;
    this.files = new Files(this.#transport, this.#base);
    this.commands = new Commands(this.#transport, this.#base);
    this.pty = new Pty(this.commands);
    this.contexts = new Contexts(this.#transport, this.#base);
    this.ports = new Ports(this.#transport, this.#base);
  }

  static async create({ client, url, apiKey, socket, plainHttp, autostart, allowedHosts, onExpiry, signal, ...options } = {}) {
    checkPackages(options.packages);
    const used = clientOf(client, { url, apiKey, socket, plainHttp, autostart });
    const hosts = allowedHosts === undefined ? undefined : texts(allowedHosts, "allowedHosts");
    const json = { ...options, allowed_hosts: hosts, on_expiry: onExpiry };
    const info = sandboxInfo(await used.transport.json("POST", "/sandboxes", { json, signal }));
    return new Sandbox(used, info, await used.transport.ofSandbox());
  }

  static async connect(sandboxId, { client, ...connection } = {}) {
    const used = clientOf(client, connection);
    const info = sandboxInfo(await used.transport.json("GET", `/sandboxes/${segment(sandboxId, "sandboxId")}`));
    return new Sandbox(used, info, await used.transport.ofSandbox());
  }

  static async list({ metadata, client, ...connection } = {}) {
    const { sandboxes } = await page(selected(metadata), client, connection);
    return sandboxes;
  }

  static async listPage({ limit = 100, after, metadata, client, ...connection } = {}) {
    return page({ ...selected(metadata), limit, after }, client, connection);
  }

  /** Ends the sandbox with everything in it. Returns `false` if it is gone. */
  async kill() {
    try {
      await this.#transport.json("DELETE", this.#base);
      return true;
    } catch (error) {
      if (await this.#isOver(error)) return false;
      throw error;
    }
  }

  async getInfo() {
    return sandboxInfo(await this.#transport.json("GET", this.#base));
  }

  async isRunning() {
    try {
      await this.getInfo();
      return true;
    } catch (error) {
      if (await this.#isOver(error)) return false;
      throw error;
    }
  }

  /** Resolves to `true` if an error says that the sandbox is gone, with its server or without it. */
  async #isOver(error) {
    return error instanceof NotFound || (error instanceof ServerGone && (await this.#transport.hasEnded()));
  }

  async setTimeout(timeout) {
    return sandboxInfo(await this.#transport.json("POST", `${this.#base}/timeout`, { json: { timeout } }));
  }

  async setNetwork(allowedHosts) {
    const json = { allowed_hosts: texts(allowedHosts, "allowedHosts") };
    return sandboxInfo(await this.#transport.json("PUT", `${this.#base}/network`, { json }));
  }

  async pause() {
    return sandboxInfo(await this.#transport.json("POST", `${this.#base}/pause`));
  }

  async resume() {
    return sandboxInfo(await this.#transport.json("POST", `${this.#base}/resume`));
  }

  async fork({ count = 1, name } = {}) {
    const { sandboxes = [] } = await this.#transport.json("POST", `${this.#base}/fork`, { json: { count, name } });
    return sandboxes.map((info) => new Sandbox(this.#client, sandboxInfo(info), this.#transport));
  }

  async snapshot({ name } = {}) {
    return snapshotInfo(await this.#transport.json("POST", `${this.#base}/snapshots`, { json: { name } }));
  }

  async events({ signal } = {}) {
    return await lifeOfOne(this.#transport, `${this.#base}/events`, { signal });
  }

  async runCode(code, { language, context, user, timeout, onStdout, onStderr, onResult, signal } = {}) {
    const json = { code, language: languageOf(language), context: typeof context === "object" ? context?.id : context, user, timeout };
    const ended = await this.#execute(json, { onStdout, onStderr, signal });
    if (onResult) for (const result of ended.results) await onResult(result);
    return ended;
  }

  async #execute(json, { onStdout, onStderr, signal }) {
    const path = `${this.#base}/run`;
    if (!onStdout && !onStderr) {
      const answer = await this.#transport.json("POST", path, { json, signal, endsWithCall: true });
      const printed = (text) => (text ? [text] : []);
      return execution(answer, printed(answer.stdout), printed(answer.stderr), Boolean(answer.truncated));
    }
    const kept = { stdout: new Kept(MAX_CODE_OUTPUT, onStdout), stderr: new Kept(MAX_CODE_OUTPUT, onStderr) };
    for await (const event of this.#transport.events("POST", path, { json, signal })) {
      if (Object.hasOwn(kept, event.name)) await kept[event.name].push(output(event));
      else if (event.name === "end") {
        for (const stream of Object.values(kept)) await stream.end();
        const truncated = kept.stdout.truncated || kept.stderr.truncated;
        return execution(event.data, kept.stdout.pieces, kept.stderr.pieces, truncated);
      }
    }
    throw new ServerGone("the stream of output ended before the code");
  }
}

checkCalls({ Client, Sandbox, Files, Commands, CommandHandle, Pty, Contexts, Ports, Approvals, Runs, Images, Snapshots, Keys, Audit });

// `await using sandbox = await Sandbox.create()`, where the language has it.
if (Symbol.asyncDispose) {
  Sandbox.prototype[Symbol.asyncDispose] = async function dispose() {
    try {
      await this.kill();
    } catch (error) {
      // Its sandboxes end with a server.
      if (!(error instanceof ServerGone || error instanceof ServerUnavailable)) throw error;
    }
  };
}
