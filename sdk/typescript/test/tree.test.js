import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, linkSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, readlinkSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Client, IncompatibleServer, InvalidArguments, RingfenceError, Sandbox, ServerGone } from "ringfence";

import { packed } from "../src/pack.js";
import { endsProtected } from "../src/protection.js";
import { limits, unpacked } from "../src/unpack.js";
import { KEY, serverForFile } from "../testing/server.js";

const server = serverForFile();
const LONG = "n".repeat(150);

/** Runs a test in an empty directory. */
async function inside(work) {
  const root = mkdtempSync(join(tmpdir(), "tree"));
  try {
    await work(root);
  } finally {
    rmSync(root, { recursive: true });
  }
}

function tree(root) {
  mkdirSync(join(root, "deep/empty"), { recursive: true });
  writeFileSync(join(root, "deep/run"), "echo hi\n");
  chmodSync(join(root, "deep/run"), 0o755);
  writeFileSync(join(root, LONG), Buffer.alloc(768_000, "abc\0"));
  writeFileSync(join(root, "é\n"), "x");
  utimesSync(join(root, "é\n"), 978307200, 978307200);
  symlinkSync("deep/run", join(root, "link"));
  linkSync(join(root, "deep/run"), join(root, "hard"));
}

/** Returns what a tree has. */
function shown(root) {
  return readdirSync(root, { withFileTypes: true })
    .sort((one, two) => (one.name < two.name ? -1 : 1))
    .flatMap((entry) => {
      const path = join(root, entry.name);
      const content = entry.isSymbolicLink() ? readlinkSync(path) : entry.isFile() ? readFileSync(path, "latin1") : shown(path);
      return [[entry.name, lstatSync(path).mode.toString(8), content]];
    });
}

for (const surface of ["socket", "tcp"]) {
  test(`a directory goes in and out (${surface})`, () =>
    inside(async (root) => {
      const client = surface === "socket" ? new Client({ socket: server.socket }) : new Client({ url: server.url, apiKey: KEY });
      const sandbox = await Sandbox.create({ client });
      const source = join(root, "source");
      mkdirSync(source);
      tree(source);
      execFileSync("mkfifo", [join(source, "fifo")]);
      try {
        const sent = await sandbox.files.uploadDir(source, "new/copy");
        rmSync(join(source, "fifo"));
        assert.deepEqual([sent.entries, sent.skipped, sent.named], [7, 0, []]);
        const ran = await sandbox.commands.run(["sh", "-c", "cd new/copy; ./deep/run; readlink link"]);
        assert.equal(ran.stdout, "hi\ndeep/run\n");
        await sandbox.commands.run("cd new/copy; ln -s / out; ln -s deep/../.. up; mkfifo fifo; chmod 500 deep; rm hard; ln deep/run hard");
        const got = await sandbox.files.downloadDir("new/copy", join(root, "back"));
        assert.deepEqual({ ...got, leftOut: got.leftOut.sort() }, { entries: 7, bytes: sent.bytes - 8, leftOut: ["out", "up"], protected: [] });
        chmodSync(join(source, "deep"), 0o500);
        assert.deepEqual(shown(join(root, "back")), shown(source));
        assert.equal(lstatSync(join(root, "back/hard")).ino, lstatSync(join(root, "back/deep/run")).ino);
        assert.equal(lstatSync(join(root, "back/é\n")).mtimeMs, 978307200_000);

        const archive = [];
        for await (const piece of sandbox.files.archive("new/copy")) archive.push(piece);
        assert.equal((await sandbox.files.extract("again", Buffer.concat(archive))).entries, 9);

        await assert.rejects(sandbox.files.downloadDir("new", source), { code: "EEXIST" });
        const large = sandbox.files.downloadDir("new", join(root, "new"), { maxSize: 10_000 });
        await assert.rejects(large, (error) => error instanceof RingfenceError && /more than 10000 bytes.*maxSize/.test(error.message));
        await assert.rejects(sandbox.files.downloadDir("new/copy/hard", join(root, "new")), /is a file/);
        await assert.rejects(sandbox.files.uploadDir(join(root, "nothing"), "d"), { code: "ENOENT" });
        await assert.rejects(sandbox.files.uploadDir(join(source, "deep"), "new/copy/hard"), InvalidArguments);
        assert.deepEqual(readdirSync(root).sort(), ["back", "source"]);
      } finally {
        await sandbox.kill();
      }
    }));
}

test("what programs of this machine obey is left out", () =>
  inside(async (root) => {
    const sandbox = await Sandbox.create({ socket: server.socket });
    try {
      const made = "mkdir -p d/a/.GIT/hooks d/bare/objects; cd d; echo x > a/.GIT/hooks/post-checkout; ln -s /bin .vscode; echo y > .envrc; touch kept a/m.pyc";
      await sandbox.commands.run(`${made}; mkdir bare/refs; echo ref: x > bare/HEAD; echo z > bare/config`, { check: true });
      const got = await sandbox.files.downloadDir("d", join(root, "got"));
      const there = readdirSync(join(root, "got"), { recursive: true });
      // The directory's order says what completes the repository.
      const ofRepository = ["bare/HEAD", "bare/objects", "bare/refs"];
      const protectedPaths = [".envrc", ".vscode", "a/.GIT", "a/m.pyc", ...ofRepository.filter((path) => !there.includes(path))].sort();
      assert.deepEqual([got.protected.sort(), protectedPaths.length], [protectedPaths, 5]);
      assert.deepEqual(got.leftOut.sort(), protectedPaths);
      const kept = ["a", "bare", "bare/config", "kept", ...ofRepository.filter((path) => there.includes(path))];
      assert.deepEqual([there.sort(), got.entries], [kept.sort(), kept.length]);
      const asked = await sandbox.files.downloadDir("d", join(root, "whole"), { includeProtected: true });
      assert.deepEqual([asked.leftOut, asked.protected], [[".vscode"], []]);
      assert.equal(readFileSync(join(root, "whole/a/.GIT/hooks/post-checkout"), "latin1"), "x\n");
      assert.equal(await sandbox.files.download("d/.envrc", join(root, ".envrc")), 2);
    } finally {
      await sandbox.kill();
    }
  }));

test("names are compared as the server does", () => {
  for (const [names, expected] of [
    [".git|.gIt|.git. .|.g\u200cit|.g\xadit|\uff0e\uff47it|.g\u0131t|.v\u017fcode|.hus\u212ay|\u017fitecu\ufb06omize.py|GIT~1|git~12", true],
    ["RINGFE~1.TOM|.git::$INDEX_ALLOCATION|.git\x01|tests/conftest.py|a.PTH.|.pth|__PyCache__|m.pyc|a/.rprofile|.mise", true],
    ["git|.gitignore|a.git.txt|.git/x|notes~1.txt|~|a~|~1|\u65e5|conftest.txt|a.pth.txt|.venvs|a:b|\u017f|m.py", false],
  ]) {
    for (const name of names.split("|")) assert.equal(endsProtected(name.split("/").map((each) => Buffer.from(each))), expected, escape(name));
  }
});

/** Returns a member of an archive. */
function member(path, { kind = "0", target = "", content = "" } = {}) {
  const block = Buffer.alloc(512);
  block.write(path, 0);
  block.write("0000644\0" + "0000000\0".repeat(2) + content.length.toString(8).padStart(11, "0") + "\0" + "0".repeat(11) + "\0", 100);
  block.write(`        ${kind}`, 148);
  block.write(target, 157);
  block.write(block.reduce((total, byte) => total + byte, 0).toString(8).padStart(6, "0") + "\0", 148);
  return Buffer.concat([block, Buffer.from(content), Buffer.alloc((512 - (content.length % 512)) % 512)]);
}

const END = Buffer.alloc(1024);
const link = (path, target) => member(path, { kind: "2", target });
const directory = (path) => member(path, { kind: "5" });
const extended = (content) => member("extended", { kind: "x", content });

test("what is below or linked to a protected name is left out", () =>
  inside(async (root) => {
    const members = [directory(".git"), directory(".git/d"), member(".git/d/f", { content: "x".repeat(600) })];
    members.push(member("l", { kind: "1", target: ".git/d/f" }), link(".git/l", "/"), member("commondir", { content: "x" }), END);
    const paths = [".git", "l", "commondir"];
    assert.deepEqual(await unpack(Buffer.concat(members), root), { entries: 0, bytes: 0, leftOut: paths, protected: paths });
    assert.deepEqual(readdirSync(join(root, "new")), []);
  }));

async function unpack(archive, root, size = archive.length) {
  const pieces = Array.from({ length: Math.ceil(archive.length / size) }, (_, at) => archive.subarray(at * size, (at + 1) * size));
  return await unpacked(pieces, join(root, "new"), 2 ** 30);
}

test("a hostile archive makes nothing", () =>
  inside(async (root) => {
    writeFileSync(join(root, "outside"), "kept");
    for (const members of [
      [member("../out", { content: "x" })],
      [member("/tmp/out", { content: "x" })],
      [member("a/../../out")],
      [member("./a")],
      [member("a//b")],
      [member("")],
      [member("missing/a")],
      [member("a"), member("a")],
      [member("a"), member("a/b")],
      // Through links that the archive brings.
      [link("a", "/"), member("a/out")],
      [link("a", ".."), directory("a")],
      [link("a", "b"), link("a", "c")],
      // A link's parent is a link or missing.
      [link("d", "."), link("d/x", "..")],
      [link("d", "."), link("d/d/d/d/d/evil", "../../../../../etc/passwd")],
      [link("missing/x", "y")],
      [member("a"), link("a/x", "y")],
      [link("d", "."), member("d/x", { kind: "1", target: "y" })],
      [member("a"), END, member("b")],
      [END, Buffer.alloc(512, "a")],
      [extended(`9004 a=${"v".repeat(8996)}\n9004 b=${"v".repeat(8996)}\n`), member("a")],
      [extended("1 a=b\n"), member("a")],
      [member("a", { kind: "1", target: "/etc/passwd" })],
      [member("a", { kind: "1", target: "../outside" })],
      [link("a", "x"), member("b", { kind: "1", target: "a" })],
      ...["3", "4", "6", "7", "L", "g"].map((kind) => [member("a", { kind })]),
      [member("a", { kind: "2", target: "b", content: "x" })],
      [extended("18 path=../../out\n"), member("a")],
      [extended("13 path=a\0b\n"), member("a")],
      [extended("99 path=a\n"), member("a")],
      [extended("path=a\n"), member("a")],
      [extended("10 size=-1\n"), member("a")],
      [extended("9 path=a\n"), extended("9 path=b\n"), member("a")],
      [Buffer.alloc(512, "a")],
    ]) {
      const archive = Buffer.concat([...members, END]);
      for (const size of [1, 700, archive.length]) {
        await assert.rejects(unpack(archive, root, size), IncompatibleServer, String(members[0].subarray(0, 20)));
        assert.deepEqual(readdirSync(root), ["outside"]);
      }
    }
    const whole = Buffer.concat([directory("d"), member("d/a", { content: "x".repeat(600) })]);
    for (const count of [0, 100, 512, 1100, whole.length]) {
      await assert.rejects(unpack(whole.subarray(0, count), root), ServerGone);
      assert.deepEqual(readdirSync(root), ["outside"]);
    }
  }));

test("links stay if they cannot lead out", async () => {
  for (const [place, target, stays] of [
    ["l", "a", true],
    ["d/l", "../a", true],
    ["d/l", ".././d/e", true],
    ["d/l", "..", true],
    ["l", "..", false],
    ["l", "../d", false],
    ["d/l", "../../d", false],
    ["l", "/etc", false],
    ["l", "d/..", false],
    ["d/l", "../d/../..", false],
    ["l", "", false],
  ]) {
    await inside(async (root) => {
      const found = await unpack(Buffer.concat([directory("d"), link(place, target), END]), root);
      assert.deepEqual([found.leftOut, existsSync(join(root, "new"))], [stays ? [] : [place], true]);
      assert.equal(readdirSync(join(root, "new"), { recursive: true }).includes(place), stays, target);
    });
  }
});

test("any cut gives the same", () =>
  inside(async (root) => {
    mkdirSync(join(root, "source"));
    tree(join(root, "source"));
    const pieces = [];
    for await (const piece of await packed(join(root, "source"))) pieces.push(piece);
    const archive = Buffer.concat(pieces);
    writeFileSync(join(root, "tar"), archive);
    const listed = execFileSync("tar", ["-tf", join(root, "tar")], { encoding: "utf8" }).trim().split("\n");
    assert.equal(listed.length, 7);
    for (const size of [97, 511, 512, 513, 100_000]) {
      await unpack(archive, root, size);
      assert.deepEqual(shown(join(root, "new")), shown(join(root, "source")));
      rmSync(join(root, "new"), { recursive: true });
    }
  }));

test("what follows the end counts", () =>
  inside(async (root) => {
    await assert.rejects(unpacked(Array(9).fill(Buffer.alloc(512)), join(root, "new"), 4096), /more than 4096 bytes.*maxSize/);
    await unpacked([extended(`260 path=${"v".repeat(250)}\n`), member("a"), END], join(root, "kept"), 4096);
    assert.deepEqual(readdirSync(root), ["kept"]);
  }));

test("too many entries are refused as such", () =>
  inside(async (root) => {
    const { entries } = limits;
    limits.entries = 2;
    try {
      await unpacked([member("a"), member("b"), END], join(root, "two"), 2 ** 20);
      await assert.rejects(unpacked([member("a"), member("b"), member("c"), END], join(root, "three"), 2 ** 20), /more than 2 entries/);
    } finally {
      limits.entries = entries;
    }
    assert.deepEqual(readdirSync(root), ["two"]);
  }));

test("names in errors have no control characters", () =>
  inside(async (root) => {
    const long = "\x1b[2J".repeat(80);
    for (const [members, expected] of [
      [[link("a\x1b[2J/x", "y")], IncompatibleServer],
      [[member("\x1b[2J"), member("\x1b[2J")], IncompatibleServer],
      [[member("\x1b[2J"), link("\x1b[2J", "y")], IncompatibleServer],
      [[member("\x1b[2J/../x")], IncompatibleServer],
      [[member("a", { kind: "\x1b" })], IncompatibleServer],
      [[extended(`${long.length + 10} path=${long}\n`), member("a")], Error],
    ]) {
      await assert.rejects(unpack(Buffer.concat([...members, END]), root), (error) => {
        assert.ok(error instanceof expected, error);
        assert.match(error.stack, /\ufffd/);
        assert.doesNotMatch(`${error.message}${error.stack}`, /\x1b/);
        return true;
      });
    }
  }));

test("what cannot be moved to its name leaves no directory there", () =>
  inside(async (root) => {
    const pieces = async function* () {
      yield END;
      for (const name of readdirSync(root)) rmSync(join(root, name), { recursive: true });
    };
    await assert.rejects(unpacked(pieces(), join(root, "new"), 2 ** 20), { code: "ENOENT" });
    assert.deepEqual(readdirSync(root), []);
  }));

test("a link that replaces a directory while it is packed is not followed", () =>
  inside(async (root) => {
    mkdirSync(join(root, "source/a/b"), { recursive: true });
    mkdirSync(join(root, "outside"));
    writeFileSync(join(root, "source/a/b/own"), "own");
    writeFileSync(join(root, "outside/secret"), "secret");
    for (const directory of ["source/a", "source/a/b"]) {
      const pieces = await packed(join(root, "source"));
      const got = [];
      for (let above = directory.split("/").length - 1; above > 0; above -= 1) got.push((await pieces.next()).value);
      renameSync(join(root, directory), join(root, "moved"));
      symlinkSync(join(root, "outside"), join(root, directory));
      for await (const piece of pieces) got.push(piece);
      rmSync(join(root, directory));
      renameSync(join(root, "moved"), join(root, directory));
      const archive = String(Buffer.concat(got));
      assert.ok(archive.includes("a/b/own") && !archive.includes("secret"), directory);
    }
  }));
