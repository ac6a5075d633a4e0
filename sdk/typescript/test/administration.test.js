import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { Client, Conflict, InvalidArguments, LimitExceeded, NotFound, PermissionDenied, Sandbox, Unauthenticated } from "ringfence";

import { KEY, serverForFile } from "../testing/server.js";

const server = serverForFile();
const own = () => new Client({ socket: server.socket });
const of = (apiKey) => new Client({ url: server.url, apiKey });
const id = (key) => key.slice(0, 11);

afterEach(async () => {
  const { keys } = own();
  for (const key of await keys.list()) {
    await keys.revoke(key.id);
    await keys.remove(key.id);
  }
});

test("keys are listed, revoked and removed", async () => {
  const quota = ["--quota-cpu", "1h", "--quota-runs", "5", "--quota-egress", "1MiB"];
  const old = server.key("old", "--tenant", "team-a", "--days", "2", ...quota);
  const admin = of(server.key("new", "--tenant", "team-a", "--rights", "admin"));
  const { keys } = admin;
  const listed = await keys.list();
  const [first, second] = ["old", "new"].map((name) => listed.find((each) => each.name === name));
  assert.deepEqual(first, {
    id: id(old),
    name: "old",
    rights: ["run", "sandboxes"],
    created: first.created,
    expires: first.created + 2 * 86400,
    quota: { cpuSeconds: 3600, runs: 5, egressBytes: 2 ** 20 },
    tenant: "team-a",
    revoked: false,
  });
  assert.deepEqual([second.rights, second.expires, second.quota], [["admin"], null, {}]);
  assert.equal((await of(old).run("print(1)")).exitCode, 0);
  await assert.rejects(keys.remove(first.id), Conflict);
  await keys.revoke(first.id);
  await keys.revoke(first.id);
  await assert.rejects(of(old).run("print(1)"), Unauthenticated);
  assert.deepEqual((await keys.list()).filter(({ revoked }) => revoked).map(({ id }) => id), [first.id]);
  await keys.remove(first.id);
  for (const unknown of [first.id, "rf_00000000", "../../x", old]) {
    for (const call of ["revoke", "remove"]) {
      await assert.rejects(keys[call](unknown), (error) => error instanceof NotFound && /no key/.test(error.message) && !error.message.includes(old.slice(11)));
    }
  }
});

test("a revoked key ends what is open", async () => {
  const key = server.key("ends");
  const sandbox = await Sandbox.create({ client: of(key) });
  const handle = await sandbox.commands.start("echo ready; exec sleep 600");
  let revoking;
  const waiting = handle.wait({ onStdout: () => (revoking = own().keys.revoke(id(key))) });
  await assert.rejects(waiting, Unauthenticated);
  await revoking;
});

test("a key without the right administers nothing", async () => {
  const small = server.key("small", "--rights", "run,sandboxes,tools");
  for (const key of [small, KEY]) {
    const { audit, keys } = of(key);
    const calls = [() => keys.list(), () => keys.revoke(id(small)), () => keys.remove(id(small)), () => audit.list(), () => audit.verify()];
    for (const refused of calls) await assert.rejects(refused, PermissionDenied);
    const report = await of(key).usage();
    assert.deepEqual(report.keys.map((each) => each.id), [key === KEY ? "RINGFENCE_API_KEY" : id(small)]);
  }
});

test("usage and quotas", async () => {
  const key = server.key("student", "--quota-runs", "2", "--tenant", "class");
  const student = of(key);
  for (const _ of "12") assert.equal((await student.run("print(sum(range(10 ** 6)))")).exitCode, 0);
  await assert.rejects(student.run("print(1)"), (error) => error instanceof LimitExceeded && error.retryAfter <= 86400);
  const { keys, resetsAt } = await student.usage();
  const [used] = keys;
  assert.deepEqual([used.id, used.name, used.tenant, used.quota], [id(key), "student", "class", { runs: 2 }]);
  assert.deepEqual([keys.length, used.today, used.today.runs, used.today.egressBytes], [1, used.total, 2, 0]);
  assert.ok(used.today.cpuSeconds > 0 && used.today.memoryGibSeconds > 0);
  assert.match(resetsAt, /T00:00:00\.000Z$/);
  assert.deepEqual((await own().usage()).keys.find((each) => each.id === id(key)), used);
});

test("the audit log", async () => {
  const key = server.key("logged", "--tenant", "logged");
  await of(key).run("print('logged')");
  await assert.rejects(Sandbox.connect("nothing", { client: of(key) }), NotFound);
  await assert.rejects(of(key).run("print(1)", { runtime: "nothing" }), InvalidArguments);
  const { audit } = own();
  const [record] = await audit.list({ client: id(key), tool: "run_code", outcome: "answered" });
  assert.deepEqual([record.arguments.code, record.decision, record.error], ["print('logged')", "allowed", null]);
  assert.deepEqual([record.who.client, record.who.surface, record.hash.length], [id(key), "http", 64]);
  assert.ok(record.duration_micros > 0);
  assert.ok((await audit.list({ tenant: "logged" })).some(({ hash }) => hash === record.hash));
  assert.deepEqual([(await audit.list({ limit: 1 })).length, await audit.list({ client: "nobody" }), await audit.list({ host: true })], [1, [], []]);
  for (const wrong of [{ limit: -1 }, { limit: "many" }, { tenant: "No Tenant" }]) await assert.rejects(audit.list(wrong), InvalidArguments);
});

test("the audit log is verified", async () => {
  const { audit } = own();
  await own().run("print(1)");
  const { intact, records, head, first, tornBytes, broken } = await audit.verify();
  assert.deepEqual([intact, first, tornBytes, broken], [true, 1, 0, null]);
  await own().run("print(2)");
  assert.equal((await audit.verify({ head })).records, records + 1);
  const [sequence] = head.split(":");
  const found = await audit.verify({ head: `${sequence}:${"0".repeat(64)}` });
  assert.deepEqual([found.intact, found.records, found.broken.sequence, found.broken.file], [false, null, Number(sequence), "audit.jsonl"]);
  await assert.rejects(audit.verify({ head: "x" }), InvalidArguments);
  const abort = new AbortController();
  const cancelled = audit.verify({ signal: abort.signal });
  abort.abort(new Error("enough"));
  await assert.rejects(cancelled, /enough/);
  assert.ok((await audit.verify()).intact);
});
