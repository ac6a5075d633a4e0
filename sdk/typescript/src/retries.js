// Decides which requests are sent again, and when. A request is sent again if that cannot do its work twice: if it never
// arrived, if the server refused it before it began, or if its connection broke and either HTTP or its `Idempotency-Key`
// makes a retry harmless.

import { ApiError, InProgress, ServerGone, ServerUnavailable } from "./errors.js";

export const KEY = "idempotency-key";

/** Milliseconds before each retry after a connection that broke, or was not made. There are as many retries. */
export const PAUSES = [100, 400];
/** Milliseconds that a call waits in all before its retries. */
const MAX_WAIT = 30_000;
const LONGEST_POLL = 1000;

/** The retries of one request. `isWhole` says that its body can be sent again. */
export class Retries {
  #harmless;
  #hasKey;
  #isWhole;
  #sent = 0;
  #polls = 0;
  #waited = 0;
  #broke;

  constructor(method, { hasKey, isWhole }) {
    this.#hasKey = hasKey;
    this.#isWhole = isWhole;
    this.#harmless = hasKey || method === "GET" || method === "PUT";
  }

  /** Resolves once it may be sent again; throws if it has failed. */
  async wait(error, signal) {
    const pause = this.pause(error);
    if (pause === undefined) throw this.failure(error);
    await elapsed(pause, signal);
  }

  /** Returns the milliseconds after which to send it again. `undefined`: it has failed. */
  pause(error) {
    const pause = this.#isWhole ? this.#pause(error) : undefined;
    if (pause === undefined || this.#waited + pause > MAX_WAIT) return undefined;
    this.#waited += pause;
    return pause;
  }

  #pause(error) {
    if (error instanceof ServerGone) {
      this.#broke ??= error;
      return this.#harmless ? this.#next() : undefined;
    }
    if (error instanceof ServerUnavailable) return this.#next();
    if (!(error instanceof ApiError)) return undefined;
    if (this.#isUnderWay(error)) {
      this.#polls += 1;
      return Math.min(PAUSES[0] * 2 ** this.#polls, LONGEST_POLL);
    }
    // Nothing was begun. Without `Retry-After`, nobody says that it could begin later.
    const refused = [429, 503].includes(error.status) && error.retryAfter !== undefined;
    return refused && this.#next() !== undefined ? error.retryAfter * 1000 : undefined;
  }

  /** Returns `true` if the server still carries out what this call sent before. */
  #isUnderWay(error) {
    return this.#hasKey && this.#broke !== undefined && error instanceof InProgress;
  }

  #next() {
    this.#sent += 1;
    return PAUSES[this.#sent - 1];
  }

  /** Returns the error of the call, after the last one: something may have happened once a connection broke. */
  failure(error) {
    const unknown = error instanceof ServerGone || error instanceof ServerUnavailable || this.#isUnderWay(error);
    return this.#broke !== undefined && unknown ? this.#broke : error;
  }
}

/** Resolves after a time, or rejects once the signal is aborted. */
export async function elapsed(milliseconds, signal) {
  signal?.throwIfAborted();
  await new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

export async function freshKey() {
  // Node.js 18 has no global one.
  const { webcrypto } = globalThis.crypto ? { webcrypto: globalThis.crypto } : await import("node:crypto");
  return webcrypto.randomUUID();
}
