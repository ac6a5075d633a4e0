// Answers of a server that is not to be trusted, as errors show them.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { test } from "node:test";

import { Busy, Client, IncompatibleServer, RingfenceError } from "ringfence";

import { ofBody } from "../src/errors.js";

/** Resolves to the error of a call that gets this answer. */
async function failure(status, body) {
  const listener = http.createServer((_, response) => response.writeHead(status).end(body)).listen(0, "127.0.0.1");
  await once(listener, "listening");
  try {
    return await new Client({ url: `http://127.0.0.1:${listener.address().port}`, apiKey: "k" }).tools().catch((error) => error);
  } finally {
    listener.close();
    listener.closeAllConnections();
  }
}

test("JSON of many levels is no answer", async () => {
  const deep = "[".repeat(200_000);
  assert.ok((await failure(200, deep)) instanceof IncompatibleServer);
  for (const body of [deep, deep + "]".repeat(deep.length)]) assert.ok((await failure(400, body)) instanceof IncompatibleServer);
  const message = JSON.parse(deep + "]".repeat(deep.length));
  const error = ofBody({ error: { type: "busy", message, hint: null } });
  assert.deepEqual([error.message, error.hint], ["", ""]);
});

test("a server's words are one line without control characters", async () => {
  const text = "a\x1b[2J\r\nb\x7f\x9b\u202e\u2066é";
  const error = await failure(400, JSON.stringify({ error: { type: "busy", message: text, hint: text } }));
  const shown = "a\\x1b[2J\\r\\nb\\x7f\\x9b\\u202e\\u2066é";
  assert.ok(error instanceof Busy);
  assert.deepEqual([error.message, error.hint], [`${shown} (hint: ${shown})`, shown]);
  assert.doesNotMatch(error.stack, /[\x1b\u202e\u2066]/);
  assert.equal(new RingfenceError("two\nlines\x1b").message, "two\nlines\\x1b");
});
