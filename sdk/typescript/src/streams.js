// Streams of events that a reader can close.

import { ServerGone } from "./errors.js";

const END = { done: true, value: undefined };

/** An iterator of events, which can be closed while somebody waits for the next one. */
class EventStream {
  #events;
  #items;
  #abort;
  #waiting = 0;
  #isClosed = false;

  constructor(events, items, abort) {
    this.#events = events;
    this.#items = items;
    this.#abort = abort;
  }

  async next() {
    if (this.#isClosed) return END;
    this.#waiting += 1;
    try {
      const found = await this.#items.next();
      if (found.done) await this.close();
      return found;
    } catch (error) {
      // Whoever closed it knows why it ends.
      if (this.#isClosed) return END;
      await this.close();
      throw error;
    } finally {
      this.#waiting -= 1;
    }
  }

  async return() {
    await this.close();
    return END;
  }

  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // Whoever waits holds the generators.
    if (this.#waiting > 0) this.#abort();
    await this.#items.return();
    await this.#events.return();
    this.#abort();
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

if (Symbol.asyncDispose) EventStream.prototype[Symbol.asyncDispose] = EventStream.prototype.close;

/**
 * Opens a stream. It resolves after the event of the name `first`, from which on none is missed; `read` yields items from the
 * events after it.
 */
export async function follow(transport, path, { signal, first }, read) {
  signal?.throwIfAborted();
  const stop = new AbortController();
  const follow = () => stop.abort(signal.reason);
  signal?.addEventListener("abort", follow, { once: true });
  const abort = () => {
    signal?.removeEventListener("abort", follow);
    stop.abort();
  };
  const events = transport.events("GET", path, { signal: stop.signal });
  try {
    for (;;) {
      const { done, value } = await events.next();
      if (done) throw new ServerGone("the stream of events ended before it began");
      if (value.name === first) return new EventStream(events, read(events), abort);
    }
  } catch (error) {
    abort();
    throw error;
  }
}
