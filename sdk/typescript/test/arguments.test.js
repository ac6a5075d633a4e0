import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { Client, IncompatibleServer, InvalidArguments, NotFound, Sandbox, ServerUnavailable, Unauthenticated } from "ringfence";

import { nameHint, sizeOf } from "../src/arguments.js";
import { KEY, serve, serverForFile } from "../testing/server.js";

const server = serverForFile();
let client;
let sandbox;
before(async () => {
  client = new Client({ socket: server.socket });
  sandbox = await Sandbox.create({ client });
});
after(() => sandbox.kill());

async function listed(programs) {
  const items = [];
  for await (const item of client.batch(programs)) items.push(item);
  return items;
}

test("arguments of another type are named", async () => {
  const { files, commands } = sandbox;
  const mapping = (name) => RegExp(`an object of names and texts for \`${name}\`, got Array .*hint: write it like`);
  const number = (name, found) => RegExp(`a finite number that is not negative for \`${name}\`, got ${found}`);
  const size = (found) => RegExp(`a number, or a text such as .* for \`maxOutput\`, got ${found}`);
  for (const [call, expected] of [
    [() => listed("print(1)"), /a list of programs for `programs`, got "print\(1\)" \(hint: pass a list/],
    [() => listed(new Uint8Array(2)), /a list of programs for `programs`, got Uint8Array/],
    [() => listed({ code: "1" }), /a list of programs for `programs`, got Object/],
    [() => listed([1]), /code, or an object .* got 1/],
    [() => Sandbox.create({ client, allowedHosts: "a.invalid" }), /a list of texts for `allowedHosts`, got "a.invalid" \(hint: pass `allowedHosts: \["a/],
    [() => Sandbox.create({ client, allowedHosts: [1] }), /texts for `allowedHosts`, got 1/],
    [() => Sandbox.create({ client, packages: ["numpy"] }), /expected a key of kept packages/],
    [() => Sandbox.create({ client, env: ["A=1"] }), mapping("env")],
    [() => Sandbox.list({ client, metadata: ["A"] }), mapping("metadata")],
    [() => commands.start("true", { env: ["A"] }), mapping("env")],
    [() => client.run("1", { files: ["a"] }), mapping("files")],
    [() => client.run("1", { files: new Map([["a", "b"]]) }), /an object of names and texts for `files`, got Map/],
    [() => commands.run(), /a line for the shell, .* for `command`, got undefined/],
    [() => commands.run(Buffer.from("ls")), /for `command`, got Buffer/],
    [() => commands.run(["echo", 1]), /texts for `command`, got 1/],
    [() => commands.run("true", { timeout: NaN }), number("timeout", "NaN")],
    [() => commands.run("true", { timeout: Infinity }), number("timeout", "Infinity")],
    [() => commands.run("true", { timeout: -1 }), number("timeout", "-1")],
    [() => sandbox.runCode("1", { timeout: NaN }), number("timeout", "NaN")],
    [() => Sandbox.create({ client, cpus: NaN }), number("cpus", "NaN")],
    [() => sandbox.fork({ count: -2 }), number("count", "-2")],
    [() => sandbox.setTimeout(NaN), /a finite number for `timeout`, got NaN/],
    [() => listed([{ code: "1", timeout: Infinity }]), /a finite number for `timeout`, got Infinity/],
    [() => client.callTool("run_code", { code: 5n }), /cannot be sent: .*BigInt/],
    [() => commands.run("true", { maxOutput: "much" }), size('"much"')],
    [() => commands.run("true", { maxOutput: 0.5 }), size("0.5")],
    [() => commands.run("true", { onStdout: "x" }), /a function for `onStdout`, got "x"/],
    [() => sandbox.runCode("1", { onResult: 5 }), /a function for `onResult`, got 5/],
    [() => files.read(), /a path as text for `path`, got undefined/],
    [() => files.write(new URL("file:///x"), "x"), /a path as text for `path`, got URL \(hint: pass its `pathname`/],
    [() => files.download("a", 5), /a local path .* for `to`, got 5/],
    [() => files.uploadDir(undefined, "a"), /a local path .* for `source`, got undefined/],
    [() => files.write("a", "b", { mode: "644" }), /`mode`, got "644"/],
    [() => files.list("a", { depth: 0 }), /at least 1 for `depth`, got 0/],
    [() => commands.connect("1"), /`pid`, got "1"/],
    [() => commands.kill(-1), /a whole number of at least 0 for `pid`, got -1/],
    [() => sandbox.ports.forward(-1), /a whole number of at least 0 for `port`, got -1/],
    [() => client.callTool(""), /for `name`, got ""/],
    [() => client.runs.get(""), /for `runId`, got ""/],
    [() => client.approvals.get(""), /for `approvalId`, got ""/],
    [() => client.snapshots.remove(""), /for `snapshotId`, got ""/],
    [() => client.keys.revoke(""), /for `keyId`, got ""/],
    [() => Sandbox.connect("", { client }), /expected an id or a name for `sandboxId`, got ""/],
    [() => Sandbox.connect(undefined, { client }), /expected an id or a name for `sandboxId`, got undefined/],
    [() => Sandbox.create({ client, url: server.url }), /`client` and `url` exclude each other/],
    [() => Sandbox.create({ client: "x" }), /a `Client` for `client`, got "x"/],
    [() => Sandbox.create({ client, mem: "1GiB" }), /unknown option `mem`, .*hint: use `memory`/],
    [() => sandbox.contexts.remove(), /an id or a name for `context`, got undefined/],
    [() => client.approvals.answer("an-id", true), /a question, .* for `question`, got "an-id"/],
    [async () => new Sandbox(), /not made with `new` \(hint: use `await Sandbox.create\(\)`/],
    [async () => new Client({ url: server.url, apiKey: " " }), /`apiKey` is empty/],
    [async () => new Client({ url: "nowhere" }), /expected an address such as https.* got "nowhere"/],
  ]) {
    await assert.rejects(call, (error) => {
      assert.ok(error instanceof InvalidArguments, `${expected}: ${error}`);
      assert.match(error.message, expected);
      assert.equal(error.status, 0, `${expected}: something was sent`);
      return true;
    });
  }
});

test("the nearest name is told", () => {
  for (const [name, expected] of [
    ["timeoutMs", "use `timeout`, in seconds"],
    ["allowed_hosts", "use `allowedHosts`"],
    ["mem", "use `memory`"],
    ["tiemout", "use `timeout`"],
    ["cols", "use `columns`"],
    ["cdw", "use `cwd`"],
    ["x", undefined],
  ]) {
    assert.equal(nameHint(name, ["name", "rows", "columns", "cwd", "timeout", "memory", "allowedHosts"]), expected, name);
  }
});

test("arguments have more than one form", async () => {
  for (const [text, expected] of [["7", 7], ["1.5k", 1536], ["2 MB", 2e6], ["1GiB", 2 ** 30], ["1TiB", 2 ** 40], [3, 3]]) assert.equal(sizeOf(text, "size"), expected);
  const long = await sandbox.commands.run("seq 1000", { maxOutput: "1KiB" });
  assert.ok(long.truncated && long.stdout.length >= 1024);
  for (const [language, code, expected] of [["js", "6 * 7", "42"], ["py", "6 * 7", "42"], ["sh", "echo 42", undefined]]) {
    const { error, text } = await sandbox.runCode(code, { language });
    assert.deepEqual([error, text], [undefined, expected]);
  }
  assert.equal((await client.run("console.log(42)", { language: "node" })).stdout, "42\n");
  assert.equal((await listed([{ code: "exit 3", language: "sh" }]))[0].result.exitCode, 3);
  assert.equal((await new Client({ url: `${server.url}/v1/`, apiKey: KEY }).run("print(1)")).stdout, "1\n");
  assert.equal((await Sandbox.list({ client, metadata: null })).length, 1);
  await assert.rejects(new Client({ url: `${server.url}/api`, apiKey: KEY }).tools(), (error) => {
    assert.ok(error instanceof IncompatibleServer);
    return /no route GET \/api\/v1\/tools .*leave \/api out of the URL/.test(error.message);
  });
});

test("a file is downloaded whole or not at all", async () => {
  const local = mkdtempSync(join(tmpdir(), "local"));
  try {
    const { files } = sandbox;
    await files.write("down/a", "x".repeat(300_000));
    assert.equal(await files.download("down/a", join(local, "a")), 300_000);
    assert.equal(readFileSync(join(local, "a"), "utf8").length, 300_000);
    await assert.rejects(files.download("down/a", join(local, "a")), { code: "EEXIST" });
    await assert.rejects(files.download("down/a", join(local, "no/such")), { code: "ENOENT" });
    await assert.rejects(files.download("down/b", join(local, "b")), NotFound);
    assert.equal(await files.download("down/a", pathToFileURL(join(local, "c"))), 300_000);
    assert.equal((await files.uploadDir(pathToFileURL(`${local}/`), "up")).entries, 2, "nothing else was left");
    assert.equal((await files.downloadDir("up", pathToFileURL(join(local, "up")), { maxSize: "1MiB" })).entries, 2);
  } finally {
    rmSync(local, { recursive: true });
  }
});

test("results say what they know", async () => {
  for (const options of [{}, { onStdout: () => {} }]) assert.ok((await sandbox.commands.run("sleep 0.2", options)).duration >= 0.2);
  assert.equal((await (await sandbox.commands.start("true")).wait()).duration, undefined);
  const { truncated, warnings } = await client.run("print('x' * 100_000)", { timeout: 60 });
  assert.deepEqual([truncated, warnings], [true, ["the caller asked for more time than 30s, and there is no more"]]);
  await sandbox.commands.run("mkdir many; cd many; seq 10001 | xargs touch", { check: true });
  const listed = await sandbox.files.list("many");
  const { entries, next } = await sandbox.files.listPage("many");
  assert.deepEqual([listed.length, entries.length, next], [10_001, 10_000, entries.at(-1).path]);
});

test("keys and addresses that do not fit", async () => {
  const own = mkdtempSync(join(tmpdir(), "tls"));
  const [key, cert] = [join(own, "key"), join(own, "cert")];
  const names = ["-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert];
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", ...names], { stdio: "ignore" });
  const served = await serve("", "--tls-cert", cert, "--tls-key", key);
  try {
    for (const [options, kind, expected] of [
      [{ url: served.url }, Unauthenticated, /with a key alone, and none was given .*`apiKey`.*RINGFENCE_API_KEY/],
      [{ url: served.url, apiKey: "rf_x" }, Unauthenticated, /does not know the key: it is wrong, or has expired/],
      [{ url: served.tls.replace("https", "http"), apiKey: KEY }, ServerUnavailable, /does not speak plain HTTP .*use https:\/\/127/],
      [{ url: served.url.replace("http", "https"), apiKey: KEY }, ServerUnavailable, /does not speak TLS .*use http:\/\/127/],
      // `fetch` does not connect to this port.
      [{ url: "http://127.0.0.1:1", apiKey: KEY }, ServerUnavailable, /no server answers at http:\/\/127.0.0.1:1: .*ECONNREFUSED/],
    ]) {
      await assert.rejects(new Client(options).tools(), (error) => {
        assert.ok(error instanceof kind, `${JSON.stringify(options)}: ${error}`);
        assert.match(error.message, expected);
        return true;
      });
    }
    const program = 'import { Client } from "ringfence"; await new Client().tools(); await new Client().tools(); console.log("used");';
    const ran = spawnSync(process.execPath, ["--input-type=module", "--eval", program], {
      cwd: fileURLToPath(new URL("..", import.meta.url)),
      env: { ...served.env, RINGFENCE_BIN: process.env.RINGFENCE_BIN, RINGFENCE_API_KEY: KEY },
      encoding: "utf8",
    });
    assert.equal(ran.stdout, "used\n", ran.stderr);
    assert.equal(ran.stderr.split("RINGFENCE_API_KEY is not used").length, 2, ran.stderr);
  } finally {
    await served.end();
    rmSync(own, { recursive: true });
  }
});
