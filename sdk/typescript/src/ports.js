// Ports of a sandbox, at addresses of this machine.

import { RingfenceError } from "./errors.js";

/** Connections that are passed on at once, as many as a sandbox has. More wait. */
const MAX_CONNECTIONS = 16;

export class Ports {
  #transport;
  #base;

  constructor(transport, base) {
    this.#transport = transport;
    this.#base = base;
  }

  async forward(port, { host = "127.0.0.2", localPort = 0, onError } = {}) {
    check(host);
    const info = await this.#transport.json("GET", this.#base);
    if (!info.ports) throw new RingfenceError("the sandbox was created without ports", "create one with `{ ports: true }`");
    const { createServer } = await import("node:net");
    const passing = new Passing(this.#transport, `${this.#base}/ports/${Number(port)}`, onError);
    // A program may go on to read after its peer has sent all.
    const server = createServer({ allowHalfOpen: true }, (socket) => passing.take(socket));
    const address = await listening(server, host, localPort);
    const close = async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      await passing.close();
      await closed;
    };
    const forwarded = { host: address.address, port: address.port, url: `http://${address.address}:${address.port}`, close };
    if (Symbol.asyncDispose) forwarded[Symbol.asyncDispose] = close;
    return forwarded;
  }
}

/** Refuses addresses that other machines reach, and 127.0.0.1, where browsers would send the sandbox the console's cookies. */
function check(host) {
  const isByte = (text) => /^(0|[1-9]\d{0,2})$/.test(text) && Number(text) <= 255;
  const parts = host.split(".");
  if (parts.length === 4 && parts.every(isByte) && parts[0] === "127" && host !== "127.0.0.1") return;
  throw new RingfenceError(`expected an address of this machine alone such as 127.0.0.2 for \`host\`, got ${JSON.stringify(host)}`);
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
  #waiting = [];

  constructor(transport, path, onError) {
    this.#transport = transport;
    this.#path = path;
    this.#onError = onError;
  }

  take(socket) {
    socket.on("error", () => {});
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
    socket.once("close", () => stop.abort());
    try {
      const content = received(socket, stop.signal);
      const { body } = await this.#transport.send("POST", this.#path, { content, isDuplex: true, signal: stop.signal });
      for await (const piece of body) await written(socket, piece);
      socket.end();
      if (!socket.writableFinished) await new Promise((resolve) => socket.once("finish", resolve).once("close", resolve));
      socket.destroy();
    } catch (error) {
      if (!stop.signal.aborted) await this.#onError?.(error);
      // Nobody takes what has arrived for the whole.
      socket.resetAndDestroy();
    } finally {
      this.#stops.delete(stop);
    }
  }

  async close() {
    for (const socket of this.#waiting.splice(0)) socket.resetAndDestroy();
    for (const stop of this.#stops) stop.abort();
    await Promise.allSettled(this.#running);
  }
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
