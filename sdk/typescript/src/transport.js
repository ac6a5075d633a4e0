// Requests over TCP, by fetch, and over a Unix socket, by Node.js's own client.

import { encoded, invalid, unexpected } from "./arguments.js";
import { BoundTransport, explained, socketOf, throwIfEnded } from "./bound.js";
import { IncompatibleServer, RingfenceError, ServerGone, ServerUnavailable, Unauthenticated, ofBody } from "./errors.js";
import { KEY, Retries, freshKey } from "./retries.js";

export const VERSION = "0.1.0";

const EVENTS = "text/event-stream";
const MAX_ANSWER = 64 * 2 ** 20;
/** Milliseconds without a byte after which a stream of events counts as broken: the server sends a comment each 10 s. */
const SILENCE = 60_000;

const environment = () => globalThis.process?.env ?? {};

export class Transport {
  #url;
  #key;
  #socket;
  /** Starts a server where none runs. */
  #autostart = false;
  /** Resolves to the socket of a server that listened. */
  #ready;

  constructor({ url, apiKey, socket, plainHttp = false, autostart = true } = {}) {
    if (url && socket) throw invalid("`url` and `socket` exclude each other", "pass one of them");
    if (!url && !socket) url = environment().RINGFENCE_API_URL;
    if (url) {
      this.#url = checked(url, plainHttp);
      this.#key = apiKey === undefined ? checkedKey(environment().RINGFENCE_API_KEY, "RINGFENCE_API_KEY") : checkedKey(apiKey, "`apiKey`");
      if (apiKey !== undefined && !this.#key) throw invalid("`apiKey` is empty", "pass a key, or leave it out for that of RINGFENCE_API_KEY");
      return;
    }
    if (apiKey !== undefined) throw invalid("a key has no use at a socket", "pass `url`, or set RINGFENCE_API_URL, too");
    if (!socket && environment().RINGFENCE_API_KEY) warnOfKey();
    this.#socket = socket;
    this.#autostart = autostart && !socket;
  }

  /**
   * Resolves to a transport for a sandbox, which does not go on to another server: that has not this sandbox. At an address that
   * the caller has named, whoever answers may pass requests on to a server that lives.
   */
  async ofSandbox() {
    return this.#autostart ? await BoundTransport.at(await this.#findServer(), this) : this;
  }

  /** Resolves to `true` if this is the transport of a sandbox whose server has ended. */
  async hasEnded() {
    return false;
  }

  /**
   * Sends a request. Returns the response once it is known to be a success; its body is an iterable of bytes. The request is
   * sent again where that is safe. With `isDuplex`, the answer may come before there is anything of the body.
   */
  async send(method, path, options = {}) {
    const response = await this.#retried(method, path, options, async (response) => response);
    const { server, signal } = options;
    return server ? { ...response, body: explained(server, response.body, signal) } : response;
  }

  /**
   * Sends a request, and returns its answer. POST has an `Idempotency-Key`, but not where the work ends with the call: what has a
   * key goes on without its caller.
   */
  async json(method, path, { endsWithCall = false, ...options } = {}) {
    const hasKey = method === "POST" && !endsWithCall && options.content === undefined;
    const key = hasKey ? await freshKey() : undefined;
    const body = await this.#retried(method, path, { ...options, key }, ({ body }) => whole(body));
    const value = parsed(body);
    if (value === undefined) throw new IncompatibleServer("the answer is not JSON");
    return value;
  }

  async #retried(method, path, options, read) {
    const { content, key, signal, server } = options;
    // What pieces come from may be at its end.
    const isWhole = content === undefined || content instanceof Uint8Array;
    const retries = new Retries(method, { hasKey: key !== undefined, isWhole });
    for (;;) {
      // A server that cannot start is not started again.
      const socket = server ? await socketOf(server) : await this.#findServer();
      try {
        return await read(await this.#attempt(socket, method, path, options));
      } catch (error) {
        if (error instanceof ServerUnavailable) this.#ready = undefined;
        await throwIfEnded(server, error, signal);
        await retries.wait(error, signal);
      }
    }
  }

  /** Returns the path of the server's socket, if it has one. */
  async #findServer() {
    if (!this.#autostart) return this.#socket;
    this.#ready ??= import("./server.js").then(({ ensure }) => ensure());
    try {
      return await this.#ready;
    } catch (error) {
      this.#ready = undefined;
      throw error;
    }
  }

  async #attempt(socket, method, path, { params, json, content, accept, key, isDuplex, signal }) {
    const headers = { "user-agent": `ringfence-typescript/${VERSION}` };
    if (this.#key) headers.authorization = `Bearer ${this.#key}`;
    if (accept) headers.accept = accept;
    if (key) headers[KEY] = key;
    let body;
    if (json !== undefined) {
      headers["content-type"] = "application/json";
      body = encoded(json);
    } else if (content !== undefined) {
      headers["content-type"] = "application/octet-stream";
      body = content;
    }
    const query = new URLSearchParams(Object.entries(params ?? {}).filter(([, value]) => value !== undefined));
    const target = `/v1${path}${query.size || query.toString() ? `?${query}` : ""}`;
    signal?.throwIfAborted();
    const request = { method, target, headers, body, signal };
    const response = await this.#dispatch(socket, request, isDuplex);
    if (response.status >= 200 && response.status < 300) return response;
    throw this.#refusal(response, parsed(await whole(response.body)), method, path);
  }

  #refusal(response, body, method, path) {
    const error = ofBody(body, factsOf(response));
    if (error instanceof Unauthenticated) return explainUnauthenticated(error, Boolean(this.#key));
    const isUnknownPath = response.status === 404 && error.hint === "GET /openapi.json lists the paths";
    if (!isUnknownPath && response.status !== 405) return error;
    const base = this.#url ? new URL(this.#url).pathname.replace(/\/$/, "") : "";
    const other = `it has another version than this package, ${VERSION}: update the older one`;
    return new IncompatibleServer(`the server has no route ${method} ${base}/v1${path}`, base ? `leave ${base} out of the URL` : other);
  }

  async #dispatch(socket, request, isDuplex) {
    if (!this.#url) return await bySocket(socket, request, socket !== this.#socket);
    // `fetch` sends the head of a request with the first piece of its body.
    return await (isDuplex ? byNode : byFetch)(this.#url, request);
  }

  /** Sends a request, and yields the events of its answer. Leaving the loop cancels what the request began. */
  async *events(method, path, options) {
    const response = await this.send(method, path, { ...options, accept: EVENTS });
    const decoder = new TextDecoder();
    let rest = "";
    for await (const piece of timed(response.body, SILENCE)) {
      rest += decoder.decode(piece, { stream: true });
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      if (rest.length > MAX_ANSWER) throw new IncompatibleServer(`an event is larger than ${MAX_ANSWER} bytes`);
      for (const block of blocks) {
        const event = parsedEvent(block);
        if (event?.name === "error") throw ofBody(event.data, { status: 200 });
        if (event) yield event;
      }
    }
  }
}

function parsedEvent(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  if (data.length === 0) return undefined;
  const value = parsed(data.join("\n"));
  if (value === undefined) throw new IncompatibleServer("the data of an event are not JSON");
  return { name, data: value };
}

/** Returns the bytes of an event of output. */
export function output(event) {
  if (typeof event.data?.text === "string") return new TextEncoder().encode(event.data.text);
  if (typeof event.data?.base64 === "string") return fromBase64(event.data.base64);
  throw new IncompatibleServer("an event of output has neither text nor bytes");
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Yields lines of JSON. */
export async function* lines(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of body) {
    rest += decoder.decode(piece, { stream: true });
    const found = rest.split("\n");
    rest = found.pop();
    if (rest.length > MAX_ANSWER) throw new IncompatibleServer(`a line is larger than ${MAX_ANSWER} bytes`);
    for (const line of found.filter((each) => each.trim())) {
      const value = parsed(line);
      if (value === undefined) throw new IncompatibleServer("a line is not JSON");
      yield value;
    }
  }
}

/** Reads a body to its end. */
export async function whole(body, limit = MAX_ANSWER) {
  const pieces = [];
  let length = 0;
  for await (const piece of body) {
    pieces.push(piece);
    length += piece.length;
    if (length > limit) throw new IncompatibleServer(`the answer is larger than ${limit} bytes`);
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function parsed(body) {
  try {
    return JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body));
  } catch {
    return undefined;
  }
}

function factsOf(response) {
  const retryAfter = /^\d+$/.test(response.header("retry-after") ?? "")
    ? Number(response.header("retry-after"))
    : undefined;
  return { status: response.status, requestId: response.header("x-request-id") ?? undefined, retryAfter };
}

/** Distinguishes a missing key from one that the server does not know. */
function explainUnauthenticated({ type, status, requestId, retryAfter }, hasKey) {
  const [message, hint] = hasKey
    ? ["the server does not know the key: it is wrong, or has expired or been revoked", "check `apiKey`, or RINGFENCE_API_KEY; `ringfence keys ls` at the server lists the keys"]
    : ["the server takes requests with a key alone, and none was given", "pass `apiKey`, or set RINGFENCE_API_KEY"];
  return new Unauthenticated(type, message, hint, { status, requestId, retryAfter });
}

const gone = (cause) =>
  new ServerGone(
    `the connection to the server broke: ${cause?.cause?.message ?? cause?.message ?? cause}`,
    "the server may have ended; what was under way may have been done all the same",
    { cause },
  );

const REFUSED = ["ECONNREFUSED", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "UND_ERR_CONNECT_TIMEOUT"];
const WRONG_VERSION = /^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST)$/;
// Errors of OpenSSL's verification, as Node.js names them.
const UNTRUSTED = /CERT|_ISSUER|_VERIFY_/;

/** Returns what ended a request: its caller, the source of its body, or what `broken` returns. */
function cause({ signal, body }, broken) {
  if (signal?.aborted) return signal.reason;
  return body?.failed ? body.failed.error : broken();
}

/** Returns the error of a connection that was not made. */
function unavailable(url, error) {
  const { code = "", errors = [] } = error?.cause ?? {};
  // A name with several addresses has an error for each.
  const message = error?.cause?.message || errors[0]?.message || code;
  const other = wrongSchemeMessage(url, error?.cause);
  if (other) return new ServerUnavailable(...other, { cause: error });
  if (REFUSED.includes(code)) {
    const hint = "check the URL, and that `ringfence serve --listen` runs there";
    return new ServerUnavailable(`no server answers at ${url}: ${message}`, hint, { cause: error });
  }
  if (!UNTRUSTED.test(code)) return undefined;
  const hint =
    code === "ERR_TLS_CERT_ALTNAME_INVALID"
      ? "use a name that the certificate has"
      : "start Node.js with NODE_EXTRA_CA_CERTS set to a file with its authority (PEM)";
  return new ServerUnavailable(`the certificate of ${url} is not trusted: ${message}`, hint, { cause: error });
}

/** Returns the message and the hint if one side spoke TLS, and the other did not. */
function wrongSchemeMessage(url, error) {
  const { protocol, host } = new URL(url);
  if (protocol === "https:" && WRONG_VERSION.test(error?.code)) {
    // Elsewhere the key would go unencrypted to whoever broke the encryption.
    const hint = isLoopback(url) ? `use http://${host}` : "use the address at which `ringfence serve --tls-cert` or a proxy serves TLS";
    return [`what answers at ${url} does not speak TLS`, hint];
  }
  // An alert of TLS, in the places where Node.js's two clients have what they could not read.
  const read = error?.data ?? error?.rawPacket ?? "";
  const [type, version] = typeof read === "string" ? [read.charCodeAt(0), read.charCodeAt(1)] : read;
  if (protocol !== "http:" || type !== 0x15 || version !== 3) return undefined;
  return [`what answers at ${url} does not speak plain HTTP`, `use https://${host}: it seems to have TLS`];
}

async function byFetch(url, request) {
  const { method, target, headers, body, signal } = request;
  const streamed = body !== undefined && typeof body !== "string" && !(body instanceof Uint8Array);
  // A stream of a response that nobody reads would keep its connection.
  const stop = new AbortController();
  const follow = () => stop.abort(signal.reason);
  signal?.addEventListener("abort", follow, { once: true });
  let response;
  try {
    response = await fetch(url + target, {
      method,
      headers,
      body: streamed ? ReadableStream.from?.(body) ?? readable(body) : body,
      signal: stop.signal,
      redirect: "manual",
      ...(streamed ? { duplex: "half" } : {}),
    });
  } catch (error) {
    signal?.removeEventListener("abort", follow);
    // As browsers, `fetch` does not connect to some ports.
    if (error?.cause?.message === "bad port") return await byNode(url, request);
    throw cause(request, () => unavailable(url, error) ?? gone(error));
  }
  const pieces = async function* () {
    let ended = false;
    try {
      for await (const piece of response.body ?? []) yield piece;
      ended = true;
    } catch (error) {
      throw cause(request, () => gone(error));
    } finally {
      signal?.removeEventListener("abort", follow);
      if (!ended) stop.abort();
    }
  };
  return { status: response.status, header: (name) => response.headers.get(name), body: pieces() };
}

/** As `ReadableStream.from`, which Node.js 18 lacks. */
function readable(pieces) {
  const iterator = pieces[Symbol.asyncIterator]?.() ?? pieces[Symbol.iterator]();
  const source = {
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel(reason) {
      await iterator.return?.(reason);
    },
  };
  // A piece that was read ahead would be lost to another client if `fetch` does not connect.
  return new ReadableStream(source, { highWaterMark: 0 });
}

async function bySocket(named, { target, headers, ...request }, isFound) {
  const { privateSocket, checkSocket } = await import("./socket.js");
  const path = named ?? privateSocket();
  checkSocket(path, isFound || named === undefined);
  const http = await import("node:http");
  const options = { socketPath: path, path: target, headers: { host: "localhost", ...headers } };
  const refused = (error) => new ServerUnavailable(`no server listens at ${path}: ${error.message}`, "start `ringfence serve`");
  return await exchanged(http, options, request, refused);
}

async function byNode(url, { target, headers, ...request }) {
  const { protocol, hostname, port, pathname } = new URL(url);
  const http = await import(protocol === "https:" ? "node:https" : "node:http");
  // As URLs have addresses of version 6.
  const host = hostname.replace(/^\[|\]$/g, "");
  const options = { host, port, path: pathname.replace(/\/$/, "") + target, headers };
  return await exchanged(http, options, request, (error) => unavailable(url, { cause: error }) ?? gone(error));
}

/** Sends a request by a module of Node.js. `refused` returns the error of a connection that was not made. */
async function exchanged(http, options, sent, refused) {
  const { method, body, signal } = sent;
  const { Readable, pipeline } = await import("node:stream");
  const response = await new Promise((resolve, reject) => {
    const request = http.request({ ...options, method, signal });
    request.on("response", resolve);
    request.on("error", (error) => {
      const isRefused = error.syscall === "connect" || UNTRUSTED.test(error.code) || WRONG_VERSION.test(error.code) || Boolean(error.rawPacket);
      reject(cause(sent, () => (isRefused ? refused(error) : gone(error))));
    });
    if (body === undefined || typeof body === "string" || body instanceof Uint8Array) return request.end(body);
    // The answer may say that nobody waits for the body.
    request.flushHeaders();
    // The error is the request's, too.
    pipeline(Readable.from(body, { objectMode: false }), request, () => {});
  });
  const pieces = async function* () {
    try {
      for await (const piece of response) yield piece;
    } catch (error) {
      throw cause(sent, () => gone(error));
    } finally {
      response.destroy();
    }
  };
  return { status: response.statusCode, header: (name) => response.headers[name], body: pieces() };
}

/** Passes pieces on; each must come in time. */
async function* timed(body, milliseconds) {
  const iterator = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      let timer;
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new ServerGone("the server has been silent for a minute")), milliseconds);
      });
      const next = iterator.next();
      // If it is late, nobody waits for it any more.
      next.catch(() => {});
      const { done, value } = await Promise.race([next, late]).finally(() => clearTimeout(timer));
      if (done) return;
      yield value;
    }
  } finally {
    await iterator.return?.();
  }
}

/** Returns a key without the white space around it, such as the last newline of a file. No message shows the key. */
function checkedKey(given, source) {
  if (given === undefined) return undefined;
  if (typeof given !== "string") throw invalid(`expected a text for ${source}, got ${typeof given}`);
  const key = given.trim();
  if (!/^[ -~]*$/.test(key)) {
    throw invalid(
      `${source} has a character that the header of a request cannot hold`,
      "pass the key alone, on one line, as `ringfence keys create` printed it",
    );
  }
  return key || undefined;
}

function checked(text, plainHttp) {
  const refused = () => unexpected("an address such as https://host:8080", "url", text);
  let url;
  try {
    url = new URL(text);
  } catch {
    throw refused();
  }
  if (!["http:", "https:"].includes(url.protocol)) throw refused();
  if (url.username || url.password || url.search || url.hash) {
    throw invalid("a key in an address is not used", "pass `apiKey`, or set RINGFENCE_API_KEY");
  }
  if (url.protocol === "http:" && !isLoopback(url) && !plainHttp) {
    throw invalid(
      `${url.hostname} would get the key and programs unencrypted`,
      "use https, or pass `plainHttp: true` for a network that you trust",
    );
  }
  // Each request adds the beginning of the routes.
  return String(text).replace(/\/+$/, "").replace(/\/v1$/, "").replace(/\/+$/, "");
}

function isLoopback(url) {
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}

let isWarned = false;

function warnOfKey() {
  if (isWarned) return;
  isWarned = true;
  globalThis.process?.emitWarning?.("RINGFENCE_API_KEY is not used: no URL is given, so that the server is this user's own (set RINGFENCE_API_URL)");
}
