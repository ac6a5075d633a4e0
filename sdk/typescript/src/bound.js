// Requests for a sandbox to the server in which it lives, and to no other one.

import { ServerGone, ServerUnavailable } from "./errors.js";
import { PAUSES, elapsed } from "./retries.js";

const ended = (cause) => new ServerGone("the server has ended, and its sandboxes with it", "create another one", { cause });

/** The transport of a sandbox: that of its client, bound to the server that listens at a private socket. */
export class BoundTransport {
  #transport;
  #server;

  constructor(transport, server) {
    this.#transport = transport;
    this.#server = server;
  }

  /** Resolves to a transport for a sandbox of the server that listens now at a path. */
  static async at(path, transport) {
    const { identity } = await import("./socket.js");
    return new BoundTransport(transport, { path, identity: identity(path) });
  }

  async ofSandbox() {
    return this;
  }

  async hasEnded() {
    return !(await lives(this.#server));
  }

  async send(method, path, options) {
    return await this.#transport.send(method, path, { ...options, server: this.#server });
  }

  async json(method, path, options) {
    return await this.#transport.json(method, path, { ...options, server: this.#server });
  }

  events(method, path, options) {
    return this.#transport.events(method, path, { ...options, server: this.#server });
  }
}

/** Resolves to the path of a server's socket. Throws if another server listens there, or none does. */
export async function socketOf({ path, identity: expected }) {
  const { identity } = await import("./socket.js");
  if (expected === undefined || identity(path) !== expected) throw ended();
  return path;
}

/** Resolves to `true` if this server accepts connections at its socket. */
async function lives({ path, identity: expected }) {
  const { listens } = await import("./server.js");
  const { identity } = await import("./socket.js");
  return expected !== undefined && identity(path) === expected && (await listens(path));
}

/** Throws `ServerGone` if a request failed because its server has ended. */
export async function throwIfEnded(server, error, signal) {
  if (!server || !(error instanceof ServerGone || error instanceof ServerUnavailable)) return;
  // The connections of a server that is killed may end before it does.
  for (const pause of [0, ...PAUSES]) {
    await elapsed(pause, signal);
    if (!(await lives(server))) throw ended(error);
  }
}

/** Yields the pieces of an answer. */
export async function* explained(server, body, signal) {
  try {
    yield* body;
  } catch (error) {
    await throwIfEnded(server, error, signal);
    throw error;
  }
}
