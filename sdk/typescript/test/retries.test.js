// Requests that are sent again: which have a key, and what becomes of a connection that breaks.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { connect, createServer } from "node:net";
import { test } from "node:test";

import { Busy, Client, Sandbox, ServerGone } from "ringfence";

import { ofBody } from "../src/errors.js";
import { KEY, Retries } from "../src/retries.js";
import { serverForFile } from "../testing/server.js";

const server = serverForFile();

/** A relay to the server that lets it do what the first requests say, and breaks off its answers. */
async function cutter(cuts) {
  const heads = [];
  const listener = createServer(async (near) => {
    const far = connect(server.socket);
    for (const each of [near, far]) each.on("error", () => {});
    near.on("close", () => far.destroy());
    const requests = messages(near);
    const answers = messages(far);
    for await (const request of requests) {
      heads.push(request.toString("latin1"));
      far.write(request);
      const { value: answer } = await answers.next();
      if (cuts > 0) {
        cuts -= 1;
        near.destroy();
        return;
      }
      near.write(answer);
    }
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  return {
    url: `http://127.0.0.1:${listener.address().port}`,
    keys: () => heads.map((head) => new RegExp(`^${KEY}: (\\S+)`, "im").exec(head)?.[1]),
    heads,
    close: () => listener.close(),
  };
}

async function* messages(socket) {
  let data = Buffer.alloc(0);
  for await (const piece of socket) {
    data = Buffer.concat([data, piece]);
    for (;;) {
      const head = data.indexOf("\r\n\r\n");
      const length = Number(/^content-length: (\d+)/im.exec(data.subarray(0, head).toString("latin1"))?.[1] ?? 0);
      if (head < 0 || data.length < head + 4 + length) break;
      yield data.subarray(0, head + 4 + length);
      data = data.subarray(head + 4 + length);
    }
  }
}

test("a sandbox whose answer was lost is made once", async () => {
  const cut = await cutter(2);
  const sandbox = await Sandbox.create({ url: cut.url, metadata: { made: "once" } });
  try {
    const found = await Sandbox.list({ socket: server.socket, metadata: { made: "once" } });
    assert.deepEqual(found.map(({ id }) => id), [sandbox.sandboxId]);
    const [first, second, third] = cut.keys();
    assert.ok(first && first === second && second === third, cut.keys());
  } finally {
    await sandbox.kill();
    cut.close();
  }
});

test("a program is not run again", async () => {
  const cut = await cutter(1);
  const client = new Client({ url: cut.url });
  await assert.rejects(client.run("print(1)"), ServerGone);
  assert.deepEqual(cut.keys(), [undefined]);
  cut.close();
});

test("an end that nobody knows is told", async () => {
  const cut = await cutter(9);
  await assert.rejects(new Client({ url: cut.url }).tools(), ServerGone);
  assert.equal(cut.heads.length, 3);
  cut.close();
});

/** A relay to the server that breaks off each stream of events after one of them. */
async function oneEvent() {
  let streams = 0;
  const listener = createServer((near) => {
    const far = connect(server.socket);
    for (const each of [near, far]) each.on("error", () => {});
    near.on("close", () => far.destroy());
    near.pipe(far);
    let answer = "";
    far.setEncoding("latin1").on("data", (piece) => {
      answer += piece;
      const head = answer.indexOf("\r\n\r\n");
      if (head < 0) return;
      if (!answer.slice(0, head).includes("text/event-stream")) {
        near.write(answer, "latin1");
        answer = "";
        return;
      }
      const end = answer.indexOf("\n\n", head + 4);
      if (end < 0) return;
      streams += 1;
      near.end(answer.slice(0, end + 2), "latin1");
      far.destroy();
    });
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  return {
    url: `http://127.0.0.1:${listener.address().port}`,
    streams: () => streams,
    close: () => listener.close(),
  };
}

test("output goes on where a connection broke", async () => {
  const relay = await oneEvent();
  const sandbox = await Sandbox.create({ socket: server.socket });
  try {
    const line = String.raw`echo out; echo err >&2; printf 'gr\303'; sleep 0.1; printf '\251'`;
    const { pid } = await sandbox.commands.start(line);
    const broken = await Sandbox.connect(sandbox.sandboxId, { url: relay.url });
    const result = await (await broken.commands.connect(pid)).wait();
    assert.deepEqual([result.stdout, result.stderr, result.truncated], ["out\ngr\u00e9", "err\n", false]);
    // Each connection brought one event at most, and the last one the end.
    assert.ok(relay.streams() >= 3, relay.streams());
  } finally {
    await sandbox.kill();
    relay.close();
  }
});

test("what the server has no room for is sent later", async () => {
  let refusals = [];
  const bodies = [];
  const listener = http
    .createServer(async (request, response) => {
      let body = "";
      for await (const piece of request) body += piece;
      bodies.push(body);
      const [status, after] = refusals.shift() ?? [200];
      const error = { error: { type: "busy", message: "m", hint: "h" } };
      const result = { stdout: "done", stderr: "", exit_code: 0, duration: 0, meta: {} };
      response.writeHead(status, { "content-type": "application/json", ...(after ? { "retry-after": after } : {}) });
      response.end(JSON.stringify(status === 200 ? result : error));
    })
    .listen(0, "127.0.0.1");
  await once(listener, "listening");
  const client = new Client({ url: `http://127.0.0.1:${listener.address().port}`, apiKey: "k" });
  refusals = [[429, "0"], [503, "0"]];
  assert.equal((await client.run("print(1)")).stdout, "done");
  assert.deepEqual([bodies.length, new Set(bodies).size], [3, 1]);
  for (const [each, sent] of [
    // Too late, without an invitation, and too often.
    [[[429, "31"]], 1],
    [[[429]], 1],
    [[[500, "0"]], 1],
    [Array(3).fill([429, "0"]), 3],
  ]) {
    refusals = [...each];
    bodies.length = 0;
    await assert.rejects(client.run("print(1)"), Busy);
    assert.equal(bodies.length, sent, each);
  }
  refusals = [[429, "20"]];
  const abort = new AbortController();
  const waiting = client.run("print(1)", { signal: abort.signal });
  while (bodies.length < 4) await new Promise(setImmediate);
  abort.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  listener.close();
  listener.closeAllConnections();
});

test("pieces are not sent again, and the first request is waited for", () => {
  const gone = new ServerGone("lost");
  for (const [method, hasKey, isWhole, again] of [
    ["GET", false, true, true],
    ["PUT", false, true, true],
    ["PUT", false, false, false],
    ["POST", true, true, true],
    ["POST", false, true, false],
    // The second one would find nothing, and say so.
    ["DELETE", false, true, false],
  ]) {
    assert.equal(new Retries(method, { hasKey, isWhole }).pause(gone) !== undefined, again, [method, hasKey, isWhole]);
  }
  const refused = (type, message) => ofBody({ error: { type, message, hint: "h" } }, { status: 409 });
  const underWay = refused("in_progress", "it has not ended");
  // The type alone tells, not the words.
  const other = refused("conflict", "the request with this key is being carried out");
  const retries = new Retries("POST", { hasKey: true, isWhole: true });
  assert.equal(retries.pause(underWay), undefined);
  assert.ok(retries.pause(gone) > 0);
  let waited = 0;
  for (let pause; (pause = retries.pause(underWay)) !== undefined; ) waited += pause;
  assert.ok(waited > 25_000 && waited < 30_000, waited);
  assert.equal(retries.failure(underWay), gone);
  assert.equal(retries.pause(other), undefined);
  assert.equal(retries.failure(other), other);
});
