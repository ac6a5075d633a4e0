// Ports of a sandbox, at addresses of this machine.

import { invalid, numberOf } from "./arguments.js";
import { RingfenceError } from "./errors.js";

/** Connections that are passed on at once, as many as a sandbox has. More wait. */
const MAX_CONNECTIONS = 16;

/**
 * Bounds; tests set others. `open` connections are passed on or wait, and more are reset. After `silence` milliseconds without a byte of the
 * program, a client that has sent its end counts as gone: nothing tells one that still reads from one that has closed its connection.
 */
export const limits = { open: 64, silence: 60_000 };

export class Ports {
  #transport;
  #base;

  constructor(transport, base) {
    this.#transport = transport;
    this.#base = base;
  }

  async forward(port, { host = "127.0.0.2", localPort = 0, onError } = {}) {
    check(host);
    const path = `${this.#base}/ports/${numberOf(port, "port")}`;
    const info = await this.#transport.json("GET", this.#base);
    if (!info.ports) throw new RingfenceError("the sandbox was created without ports", "create one with `{ ports: true }`");
    const { createServer } = await import("node:net");
    const passing = new Passing(this.#transport, path, onError);
    // A program may go on to read after its peer has sent all.
    const server = createServer({ allowHalfOpen: true }, (socket) => passing.take(socket));
    const address = await listening(server, host, localPort);
    const close = async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      try {
        await passing.close();
      } finally {
        await closed;
      }
    };
    const forwarded = { host: address.address, port: address.port, url: `http://${address.address}:${address.port}`, close };
    if (Symbol.asyncDispose) forwarded[Symbol.asyncDispose] = close;
    return forwarded;
  }
}

/** Refuses addresses that other machines reach, and 127.0.0.1, where browsers would send the sandbox the console's cookies. */
function check(host) {
  const isByte = (text) => /^(0|[1-9]\d{0,2})$/.test(text) && Number(text) <= 255;
  const parts = String(host).split(".");
  if (parts.length === 4 && parts.every(isByte) && parts[0] === "127" && host !== "127.0.0.1") return;
  throw invalid(`expected an address of this machine alone such as 127.0.0.2 for \`host\`, got ${JSON.stringify(host)}`);
}

async function listening(server, host, port) {
  return await new Promise((resolve, reject) => {
    server.once("error", (cause) => {
      reject(new RingfenceError(`cannot listen at ${host}:${port}: ${cause.message}`, "pass another `host` or `localPort`", { cause }));
    });
    server.listen(port, host, () => resolve(server.address()));
  });
}

/** Connections that are passed on to a port, and those that wait. */
class Passing {
  #transport;
  #path;
  #onError;
  #stops = new Set();
  #running = new Set();
  #reports = new Set();
  #waiting = [];
  /** Values that `onError` threw. */
  #thrown = [];

  constructor(transport, path, onError) {
    this.#transport = transport;
    this.#path = path;
    this.#onError = onError;
  }

  take(socket) {
    socket.on("error", () => {});
    if (this.#running.size + this.#waiting.length >= limits.open) {
      reset(socket);
      return this.#report(new RingfenceError(`a connection was reset: there are ${limits.open} others`, "close some of them"));
    }
    socket.once("close", () => {
      this.#waiting = this.#waiting.filter((each) => each !== socket);
    });
    this.#waiting.push(socket);
    this.#begin();
  }

  #begin() {
    if (this.#running.size >= MAX_CONNECTIONS || this.#waiting.length === 0) return;
    const running = this.#pass(this.#waiting.shift()).finally(() => {
      this.#running.delete(running);
      this.#begin();
    });
    this.#running.add(running);
  }

  async #pass(socket) {
    // Its peer may have gone before all was sent; the program's answer ends the request otherwise.
    const stop = new AbortController();
    this.#stops.add(stop);
    // A peer that does not read would be waited for.
    stop.signal.addEventListener("abort", () => reset(socket), { once: true });
    socket.once("close", () => stop.abort());
    const silence = new Silence(socket, (error) => stop.abort(error));
    try {
      const content = received(socket, stop.signal);
      const { body } = await this.#transport.send("POST", this.#path, { content, isDuplex: true, signal: stop.signal });
      for await (const piece of body) {
        silence.pause();
        await written(socket, piece);
        silence.go();
      }
      silence.pause();
      socket.end();
      if (!socket.writableFinished) await new Promise((resolve) => socket.once("finish", resolve).once("close", resolve));
      socket.destroy();
    } catch (error) {
      reset(socket);
      if (!stop.signal.aborted) this.#report(error);
      else if (stop.signal.reason instanceof RingfenceError) this.#report(stop.signal.reason);
    } finally {
      silence.pause();
      this.#stops.delete(stop);
    }
  }

  /** Calls `onError`. No connection waits for it. */
  #report(error) {
    const report = async () => await this.#onError?.(error);
    const reported = report()
      .catch((thrown) => this.#thrown.push(thrown))
      .finally(() => this.#reports.delete(reported));
    this.#reports.add(reported);
  }

  /** Ends the connections. Throws the first value that `onError` has thrown. */
  async close() {
    for (const socket of this.#waiting.splice(0)) reset(socket);
    for (const stop of this.#stops) stop.abort();
    await Promise.all(this.#running);
    await Promise.all(this.#reports);
    const thrown = this.#thrown.splice(0);
    if (thrown.length > 0) throw thrown[0];
  }
}

/** The time for which a program has sent nothing since its client's end. It begins anew with each `go`. */
class Silence {
  #timer;
  #isOver;
  #isPaused = false;
  #end;

  constructor(socket, end) {
    this.#end = end;
    this.#isOver = socket.readableEnded;
    socket.once("end", () => {
      this.#isOver = true;
      this.#set();
    });
    this.#set();
  }

  pause() {
    this.#isPaused = true;
    this.#set();
  }

  go() {
    this.#isPaused = false;
    this.#set();
  }

  #set() {
    clearTimeout(this.#timer);
    if (!this.#isOver || this.#isPaused) return;
    const message = `a connection was reset: its client had sent its end, and the program nothing for ${limits.silence / 1000} s`;
    this.#timer = setTimeout(() => this.#end(new RingfenceError(message)), limits.silence);
  }
}

/** Resets a connection: nobody takes what has arrived for the whole. */
export function reset(socket) {
  // Once its end is on the way all is sent. Node.js fails to reset it then, and never emits `close`.
  if (!(socket.writableEnded && socket.writableLength === 0)) socket.resetAndDestroy();
  // It would wait for what is not sent yet, which a peer may never read.
  socket.destroy();
}

/** Yields what a socket receives. The socket stays, whoever stops reading. */
async function* received(socket, signal) {
  yield* socket.iterator({ destroyOnReturn: false });
  signal.throwIfAborted();
}

async function written(socket, piece) {
  if (socket.destroyed) throw new Error("whoever connected has gone");
  if (socket.write(piece)) return;
  await new Promise((resolve) => {
    const done = () => {
      socket.off("drain", done).off("close", done);
      resolve();
    };
    socket.on("drain", done).on("close", done);
  });
}
