// Commands of a sandbox, and its terminals.

import { commandOf, numberOf, sizeOf } from "./arguments.js";
import { sized } from "./body.js";
import { CommandFailed, NotFound, ServerGone, ServerUnavailable } from "./errors.js";
import { Kept, commandEnd, processInfo } from "./results.js";
import { Retries } from "./retries.js";
import { output } from "./transport.js";

const MAX_OUTPUT = 2 ** 20;

export class CommandHandle {
  #transport;
  #base;
  /** Resolves once the input before has been sent: connections overtake each other, and keys must not. */
  #turn = Promise.resolve();

  constructor(transport, base, pid) {
    this.#transport = transport;
    this.#base = `${base}/processes/${pid}`;
    this.pid = pid;
  }

  async info() {
    return processInfo(await this.#transport.json("GET", this.#base));
  }

  /**
   * Yields the output from its beginning, of which the server keeps the last MiB, until the end. A connection that breaks is
   * made again, and no output is missed or repeated.
   */
  async *stream({ signal } = {}) {
    for await (const event of this.#events(signal)) {
      if (isOutput(event)) yield { stream: event.name, data: output(event) };
    }
  }

  async *#events(signal) {
    const retries = () => new Retries("GET", { hasKey: false, isWhole: true });
    let [position, left] = [0, retries()];
    for (;;) {
      try {
        const params = { from: position };
        for await (const event of this.#transport.events("GET", `${this.#base}/output`, { params, signal })) {
          yield event;
          if (event.name === "end") return;
          if (event.name === "lost") position += event.data.bytes;
          if (isOutput(event)) [position, left] = [event.data.position + output(event).length, retries()];
        }
        throw new ServerGone("the stream of output ended before the process");
      } catch (error) {
        if (!(error instanceof ServerGone || error instanceof ServerUnavailable)) throw error;
        await left.wait(error, signal);
      }
    }
  }

  async wait({ onStdout, onStderr, maxOutput = MAX_OUTPUT, check = false, signal } = {}) {
    const limit = sizeOf(maxOutput, "maxOutput");
    return passed(await collected(this.#events(signal), { onStdout, onStderr, maxOutput: limit }), check);
  }

  /** Kills the process with its descendants, and waits for its end. Returns `false` if it had ended. */
  async kill() {
    if ((await this.info()).end) return false;
    await this.#transport.json("DELETE", this.#base);
    return true;
  }

  async sendSignal(signal) {
    await this.#transport.json("POST", `${this.#base}/signal`, { json: { signal } });
  }

  async sendStdin(data, { end = false, signal } = {}) {
    const { content } = sized(data);
    const turn = this.#turn;
    const send = () => this.#transport.json("POST", `${this.#base}/stdin`, { params: { end }, content, signal });
    const sent = unlessAborted(turn, signal).then(send);
    this.#turn = turn.then(() => sent).catch(() => {});
    await sent;
  }

  async closeStdin() {
    await this.sendStdin("", { end: true });
  }

  async resize(columns, rows) {
    await this.#transport.json("POST", `${this.#base}/resize`, { json: { columns, rows } });
  }
}

/** Resolves with a promise that never rejects, or rejects once the signal is aborted. */
async function unlessAborted(promise, signal) {
  if (!signal) return await promise;
  signal.throwIfAborted();
  let abort;
  const aborted = new Promise((_, reject) => {
    abort = () => reject(signal.reason);
    signal.addEventListener("abort", abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function isOutput(event) {
  return event.name === "stdout" || event.name === "stderr";
}

async function collected(events, { onStdout, onStderr, maxOutput }) {
  const kept = { stdout: new Kept(maxOutput, onStdout), stderr: new Kept(maxOutput, onStderr) };
  let lost = false;
  for await (const event of events) {
    if (Object.hasOwn(kept, event.name)) await kept[event.name].push(output(event));
    else if (event.name === "lost") lost = true;
    else if (event.name === "end") {
      const result = { ...commandEnd(event.data), stdout: await kept.stdout.end(), stderr: await kept.stderr.end() };
      return { ...result, truncated: lost || kept.stdout.truncated || kept.stderr.truncated };
    }
  }
  throw new ServerGone("the stream of output ended before the process");
}

function passed(result, check) {
  if (check && !(result.outcome === "exited" && result.exitCode === 0)) throw new CommandFailed(result);
  return result;
}

export class Commands {
  #transport;
  #base;

  constructor(transport, base) {
    this.#transport = transport;
    this.#base = base;
  }

  async run(command, { maxOutput = MAX_OUTPUT, check = false, onStdout, onStderr, signal, ...options } = {}) {
    const json = { command: commandOf(command), ...process(options) };
    const limit = sizeOf(maxOutput, "maxOutput");
    if (onStdout || onStderr || limit > MAX_OUTPUT) {
      const begun = performance.now();
      const events = this.#transport.events("POST", `${this.#base}/exec`, { json, signal });
      const ended = await collected(events, { onStdout, onStderr, maxOutput: limit });
      // The event has no time: this one has the way and the callbacks in it.
      return passed({ ...ended, duration: (performance.now() - begun) / 1000 }, check);
    }
    json.max_output = limit;
    const answer = await this.#transport.json("POST", `${this.#base}/exec`, { json, signal, endsWithCall: true });
    return passed(commandEnd(answer), check);
  }

  async start(command, { stdin = false, ...options } = {}) {
    return await this._start({ command: commandOf(command), stdin, ...process(options) });
  }

  async _start(json) {
    const { pid } = processInfo(await this.#transport.json("POST", `${this.#base}/processes`, { json }));
    return new CommandHandle(this.#transport, this.#base, pid);
  }

  async connect(pid) {
    const handle = new CommandHandle(this.#transport, this.#base, numberOf(pid, "pid"));
    await handle.info();
    return handle;
  }

  async list() {
    const { processes = [] } = await this.#transport.json("GET", `${this.#base}/processes`);
    return processes.map(processInfo);
  }

  async kill(pid) {
    try {
      return await new CommandHandle(this.#transport, this.#base, numberOf(pid, "pid")).kill();
    } catch (error) {
      if (error instanceof NotFound) return false;
      throw error;
    }
  }
}

const process = ({ cwd, env, timeout, user }) => ({ cwd, env, timeout, user });

export class Pty {
  #commands;

  constructor(commands) {
    this.#commands = commands;
  }

  async create({ command = ["bash", "-i"], columns = 80, rows = 24, ...options } = {}) {
    return await this.#commands._start({ command: commandOf(command), stdin: true, terminal: { columns, rows }, ...process(options) });
  }
}
