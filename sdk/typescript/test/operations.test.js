import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Client, Conflict, InvalidArguments, NotFound, PermissionDenied, Sandbox, ServerGone } from "ringfence";

import { ASK, KEY, LONG, serve, serverForFile } from "../testing/server.js";

const server = serverForFile(ASK);

test("a program answers what people are asked", async () => {
  const client = new Client({ socket: server.socket });
  // Nobody is there to be asked.
  assert.equal((await client.run("while True: pass")).meta.outcome, "timed_out");
  const events = await client.approvals.events();
  const next = async () => (await events.next()).value;
  let running = client.run("while True: pass # \u202e");
  const { type, id, question } = await next();
  assert.deepEqual([type, id, question.kind, question.state, question.risk], ["question", question.id, "soft_timeout", "pending", null]);
  assert.match(question.text, /`run_code` has run for 200ms/);
  assert.ok(question.text.includes("\\u{202e}") && !question.text.includes("\u202e"));
  assert.ok(question.pieces.some(({ escape }) => escape === "\\u{202e}"));
  assert.equal(question.pieces.map(({ plain, escape }) => plain ?? escape).join(""), question.text);
  assert.ok(question.expires > question.created && question.remember.includes("once"));
  assert.deepEqual([await client.approvals.list(), await client.approvals.get(id)], [[question], question]);
  await assert.rejects(client.approvals.answer(question, true, { remember: "always" }), InvalidArguments);
  await client.approvals.answer(question, false, { remember: "session" });
  const over = await next();
  assert.deepEqual([over.type, over.id, over.state, over.question], ["over", id, "rejected", undefined]);
  assert.equal((await running).meta.outcome, "timed_out");
  await assert.rejects(client.approvals.answer(question, true), Conflict);

  running = client.run(LONG);
  const second = (await next()).question;
  await client.approvals.answer(second, true);
  assert.equal((await next()).state, "approved");
  assert.equal((await running).stdout, "done\n");
  const waiting = events.next();
  await events.close();
  assert.ok((await waiting).done);
  const past = await client.approvals.list({ past: true });
  assert.deepEqual(past.map(({ id, state, by }) => [id, state, by]), [[second.id, "approved", over.by], [id, "rejected", over.by]]);
  assert.deepEqual(await client.approvals.list(), []);
  await assert.rejects(client.approvals.get(`apr_${"0".repeat(32)}`), NotFound);
});

test("a key without the right answers nothing", async () => {
  const client = new Client({ url: server.url, apiKey: KEY });
  for (const refused of [client.approvals.list(), client.approvals.events(), client.images.list()]) {
    await assert.rejects(refused, PermissionDenied);
  }
});

test("questions end with the server", async () => {
  const own = await serve(ASK);
  const events = await new Client({ socket: own.socket }).approvals.events();
  const ending = own.end("SIGKILL");
  await assert.rejects(events.next(), ServerGone);
  await ending;
});

test("stored runs", async () => {
  const client = new Client({ socket: server.socket });
  const ids = [];
  for (const status of [3, 4, 5]) {
    const { meta } = await client.run(`print('é'); raise SystemExit(${status})`);
    ids.unshift(meta.artifact.replace(/\.json$/, ""));
  }
  const newest = await client.runs.list({ limit: 2 });
  assert.deepEqual(newest.runs.map(({ id, exitCode, outcome, language }) => [id, exitCode, outcome, language]), [
    [ids[0], 5, "exited", "python"],
    [ids[1], 4, "exited", "python"],
  ]);
  const [older] = (await client.runs.list({ before: newest.next })).runs;
  const stored = await client.runs.get(ids[2]);
  assert.deepEqual([older.id, older.time, older.exitCode], [ids[2], stored.time, 3]);
  assert.deepEqual([stored.code, stored.result.stdout, stored.result.exitCode], ["print('é'); raise SystemExit(3)", "é\n", 3]);
  assert.equal(stored.result.meta.outcome, "exited");
  await assert.rejects(client.runs.get("20200101T000000.000Z_000000000000"), NotFound);
});

/** A registry with one image, whose layer has one file. It says nothing about those below `silent`. */
async function registry() {
  const root = mkdtempSync(join(tmpdir(), "root"));
  writeFileSync(join(root, "data"), "here");
  execFileSync("tar", ["-cf", join(root, "root.tar"), "-C", root, "data"]);
  const answers = new Map();
  const blob = (body) => {
    const digest = `sha256:${createHash("sha256").update(body).digest("hex")}`;
    answers.set(`/v2/app/blobs/${digest}`, body);
    return { digest, size: body.length, mediaType: "application/vnd.oci.image.layer.v1.tar" };
  };
  const layer = blob(readFileSync(join(root, "root.tar")));
  rmSync(root, { recursive: true });
  const config = blob(Buffer.from(JSON.stringify({
    architecture: { x64: "amd64" }[process.arch] ?? process.arch,
    os: "linux",
    config: { Env: ["COLOUR=red"] },
    rootfs: { type: "layers", diff_ids: [layer.digest] },
  })));
  answers.set("/v2/app/manifests/1", JSON.stringify({ schemaVersion: 2, config, layers: [layer] }));
  const listener = createServer((request, response) => {
    listener.emit("asked", response);
    if (request.url.includes("/silent/")) return;
    const body = answers.get(request.url);
    response.writeHead(body ? 200 : 404).end(body);
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  return { listener, name: `127.0.0.1:${listener.address().port}/app:1` };
}

test("images are pulled", async () => {
  const { listener, name } = await registry();
  const client = new Client({ socket: server.socket });
  try {
    const progress = [];
    const { image, wasThere } = await client.images.pull(name, { onProgress: (each) => progress.push(each) });
    assert.deepEqual([wasThere, image.references, image.layers, image.content.bytes], [false, [name], 1, 4]);
    assert.deepEqual([image.process.Env, image.content.setIds], [["COLOUR=red"], 0]);
    const { layer, layers, received, size } = progress.at(-1);
    assert.ok(layer === 1 && layers === 1 && received === size && size > 0, progress);
    assert.deepEqual(await client.images.list(), [image]);
    assert.ok((await client.images.pull(name)).wasThere);
    const sandbox = await Sandbox.create({ client, image: name });
    assert.equal(await sandbox.files.read("/data"), "here");
    assert.equal(await client.images.remove(name), "in_use");
    await sandbox.kill();
    assert.deepEqual(await client.images.list(), []);
    await assert.rejects(client.images.remove(name), NotFound);
    await assert.rejects(client.images.pull(name.replace(":1", ":2")), InvalidArguments);
    await assert.rejects(client.images.pull("Not A Reference"), InvalidArguments);

    const abort = new AbortController();
    const asked = once(listener, "asked");
    const pulling = client.images.pull(name.replace("/app", "/silent/app"), { signal: abort.signal });
    const [response] = await asked;
    abort.abort(new Error("enough"));
    await assert.rejects(pulling, /enough/);
    await once(response, "close");
  } finally {
    listener.closeAllConnections();
    listener.close();
  }
});
