// Bodies of uploads: what callers pass, as bytes or pieces of bytes.

import { invalid, typeName } from "./arguments.js";

/** Returns data as bytes or pieces of bytes, with their number if it is known. Throws before anything is sent if it is none. */
export function sized(data) {
  const whole = bytes(data);
  if (whole) return { content: whole, size: whole.length };
  if (data instanceof Blob) return { content: new Pieces(data.stream()), size: data.size };
  if (!data?.[Symbol.asyncIterator] && !data?.[Symbol.iterator]) {
    throw unexpected("text, bytes, a Blob, or an iterable of text or bytes for the data", data);
  }
  // Without a listener, a stream that fails before it is read ends the process. Whoever reads it gets the error all the same.
  data.on?.("error", () => {});
  return { content: new Pieces(data) };
}

function bytes(data) {
  if (typeof data === "string") return new TextEncoder().encode(data);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return data instanceof Uint8Array ? data : undefined;
}

async function* pieces(source) {
  for await (const piece of source) {
    const content = bytes(piece);
    if (!content) throw unexpected("text or bytes for each piece of the data", piece);
    yield content;
  }
}

/** Pieces of bytes. An error of their source ends the request, and is the one that the caller gets. */
class Pieces {
  #read;
  /** `{ error }` once the source has failed. */
  failed;

  constructor(source) {
    this.#read = pieces(source);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  // Without `throw`, which would pass errors of the connection off as those of the source.
  async next() {
    try {
      return await this.#read.next();
    } catch (error) {
      this.failed ??= { error };
      throw error;
    }
  }

  async return() {
    return await this.#read.return();
  }
}

const unexpected = (expected, value) => invalid(`expected ${expected}, got ${typeName(value)}`);
