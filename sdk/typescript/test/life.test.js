import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, Conflict, InvalidArguments, NotFound, NotSupported, Sandbox, ServerGone } from "ringfence";

import { KEY, serve, serverForFile } from "../testing/server.js";

const server = serverForFile();

/** Runs a test with a sandbox over the socket, and over TCP with a key. */
function both(name, work) {
  for (const surface of ["socket", "tcp"]) {
    test(`${name} (${surface})`, async (context) => {
      const client = surface === "socket" ? new Client({ socket: server.socket }) : new Client({ url: server.url, apiKey: KEY });
      const sandbox = await Sandbox.create({ client });
      try {
        await work(sandbox, client, context);
      } finally {
        await sandbox.kill();
      }
    });
  }
}

both("a paused sandbox refuses until it is resumed", async (sandbox, _, context) => {
  await sandbox.runCode("kept = 1");
  try {
    assert.equal((await sandbox.pause()).state, "paused");
  } catch (error) {
    assert.ok(error instanceof NotSupported && /freezer/.test(error.message), error);
    return context.skip("this machine has no freezer");
  }
  for (const refused of [
    () => sandbox.commands.run("true"),
    () => sandbox.runCode("1"),
    () => sandbox.files.list(),
    () => sandbox.fork(),
    () => sandbox.snapshot(),
  ]) {
    await assert.rejects(refused, (error) => error instanceof Conflict && /is paused \(hint: resume it first: `sandbox.resume\(\)`\)/.test(error.message));
  }
  assert.equal((await sandbox.resume()).state, "running");
  assert.equal((await sandbox.runCode("kept")).text, "1");
});

both("forks and snapshots have the files", async (sandbox, client) => {
  await sandbox.files.write("a", "kept");
  const [twin] = await sandbox.fork({ name: "twin" });
  assert.deepEqual([(await twin.getInfo()).name, await twin.files.read("a")], ["twin", "kept"]);
  await assert.rejects(sandbox.fork({ name: "twin" }), Conflict);
  await assert.rejects(sandbox.fork({ count: 17 }), InvalidArguments);
  await twin.kill();
  const copies = await sandbox.fork({ count: 2 });
  assert.deepEqual(await Promise.all(copies.map((copy) => copy.kill())), [true, true]);
  const made = await sandbox.snapshot({ name: "base" });
  try {
    assert.deepEqual([made.name, made.sandbox], ["base", sandbox.sandboxId]);
    assert.ok(made.diskLimit > 0 && made.cpuLimit > 0 && made.size > 0 && made.createdAt);
    await assert.rejects(sandbox.snapshot({ name: "base" }), Conflict);
    assert.deepEqual([await client.snapshots.list(), await client.snapshots.get("base")], [[made], made]);
    const again = await Sandbox.create({ client, snapshot: made.id });
    assert.equal(await again.files.read("a"), "kept");
    await again.kill();
  } finally {
    await client.snapshots.remove(made.id);
  }
  await assert.rejects(client.snapshots.get("base"), NotFound);
  await assert.rejects(client.snapshots.remove("base"), NotFound);
});

test("hosts are changed", async () => {
  const client = new Client({ socket: server.socket });
  const ask = "curl --silent --output /dev/null --write-out '%{http_code} ' http://127.0.0.1:9/";
  const sandbox = await Sandbox.create({ client, ports: true });
  const plain = await Sandbox.create({ client });
  try {
    assert.equal((await sandbox.commands.run(ask)).exitCode, 7);
    // The proxy is told of from now on, and says why it does not go there.
    assert.deepEqual((await sandbox.setNetwork(["a.invalid"])).allowedHosts, ["a.invalid"]);
    assert.equal((await sandbox.commands.run(ask)).stdout, "403 ");
    assert.deepEqual([(await sandbox.setNetwork([])).allowedHosts, (await sandbox.getInfo()).allowedHosts], [[], []]);
    await assert.rejects(sandbox.setNetwork(["?"]), InvalidArguments);
    await assert.rejects(plain.setNetwork(["a.invalid"]), NotSupported);
    await assert.rejects(async () => sandbox.setNetwork("a.invalid"), /a list of texts for `allowedHosts`/);
  } finally {
    await Promise.all([sandbox.kill(), plain.kill()]);
  }
});

both("events end with the sandbox", async (sandbox, client) => {
  const all = await client.sandboxEvents();
  const events = await sandbox.events();
  const { expiresAt } = await sandbox.setTimeout("10m");
  const [copy] = await sandbox.fork();
  await copy.kill();
  await sandbox.kill();
  const seen = [];
  for await (const event of events) seen.push(event);
  assert.deepEqual(seen.map(({ type }) => type), ["expiry_changed", "forked", "removed"]);
  assert.deepEqual([seen[0].expiresAt, seen[1].copies, seen[2].reason], [expiresAt, [copy.sandboxId], "it was removed"]);
  assert.ok(seen.every((event) => event.sandbox === sandbox.sandboxId && event.time));
  // Those of all have the copy's, too.
  const ends = new Set();
  for await (const event of all) {
    if (event.type === "removed") ends.add(event.sandbox);
    if (ends.size === 2) break;
  }
  assert.deepEqual(ends, new Set([sandbox.sandboxId, copy.sandboxId]));
  await assert.rejects(sandbox.events(), NotFound);
});

both("events can be closed, and aborted", async (sandbox) => {
  const closed = await sandbox.events();
  const next = closed.next();
  await closed.close();
  assert.deepEqual([await next, await closed.next()], Array(2).fill({ done: true, value: undefined }));
  await (await sandbox.events()).return();
  const left = await sandbox.events();
  await sandbox.setTimeout("10m");
  for await (const { type } of left) {
    assert.equal(type, "expiry_changed");
    break;
  }
  assert.deepEqual(await left.next(), { done: true, value: undefined });
  const abort = new AbortController();
  const aborted = await sandbox.events({ signal: abort.signal });
  const waiting = aborted.next();
  abort.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await assert.rejects(sandbox.events({ signal: abort.signal }), /enough/);
});

test("a server that ends is told from a sandbox that does", async () => {
  const own = await serve();
  const sandbox = await Sandbox.create({ socket: own.socket });
  const events = await sandbox.events();
  const ending = own.end("SIGKILL");
  await assert.rejects(async () => {
    for await (const event of events) assert.ok(["removed", "ended"].every((type) => type !== event.type), event);
  }, ServerGone);
  await ending;
});
