import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { connect, createServer } from "node:net";
import { test } from "node:test";

import { Client, NotFound, RingfenceError, Sandbox } from "ringfence";

import { limits, reset } from "../src/ports.js";
import { KEY, serverForFile } from "../testing/server.js";

const server = serverForFile();

// It echoes, and says when the other side has ended.
const ECHO = `
import socket, threading
listener = socket.create_server(("127.0.0.1", 7000))
print("ready", flush=True)
def serve(peer):
    with peer:
        while piece := peer.recv(65536):
            peer.sendall(piece)
        peer.sendall(b"over")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
`;

// It fills what is between it and a client who does not read, and says so; it takes no connection at port 7003.
const FULL = `
import select, socket
listener, quiet = [socket.create_server(("127.0.0.1", port)) for port in (7002, 7003)]
print("ready", flush=True)
peer = listener.accept()[0]
while select.select([], [peer], [], 1)[1]:
    peer.send(bytes(65536))
print("full", flush=True)
listener.accept()
`;

test("a connection whose end is on its way is closed by a reset", { timeout: 60_000 }, async () => {
  const listener = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const client = connect({ port: listener.address().port, host: "127.0.0.1", allowHalfOpen: true }).on("error", () => {});
  const [socket] = await once(listener, "connection");
  const closed = new Promise((resolve) => socket.on("error", () => {}).once("close", resolve));
  socket.end();
  reset(socket);
  await closed;
  client.destroy();
  listener.close();
});

/** Runs a test with a program in a sandbox that has said "ready", over the socket, and over TCP with a key. */
function both(name, code, work) {
  for (const surface of ["socket", "tcp"]) {
    test(`${name} (${surface})`, { timeout: 120_000 }, async () => {
      const client = surface === "socket" ? new Client({ socket: server.socket }) : new Client({ url: server.url, apiKey: KEY });
      const sandbox = await Sandbox.create({ client, ports: true, pids: 256 });
      try {
        const program = await sandbox.commands.start(["python3", "-c", code]);
        const said = program.stream();
        assert.equal(new TextDecoder().decode((await said.next()).value.data), "ready\n");
        await work(sandbox, client, said);
        await said.return();
      } finally {
        await sandbox.kill();
      }
    });
  }
}

const connected = ({ host, port }) => connect({ host, port, allowHalfOpen: true });

const resetOf = async (socket) => (await once(socket, "error"))[0].code;

async function rest(socket) {
  const pieces = [];
  for await (const piece of socket) pieces.push(piece);
  return Buffer.concat(pieces);
}

both("both directions go on at once", ECHO, async (sandbox) => {
  const address = await sandbox.ports.forward(7000);
  assert.deepEqual([address.host, address.url], ["127.0.0.2", `http://127.0.0.2:${address.port}`]);
  const one = connected(address);
  const two = connected(address);
  two.write("two");
  for (const text of ["a", "bc", "d".repeat(1000)]) {
    one.write(text);
    let echoed = "";
    while (echoed.length < text.length) echoed += (await once(one, "data"))[0];
    assert.equal(echoed, text);
  }
  one.end();
  assert.equal(String(await rest(one)), "over");
  two.end();
  assert.equal(String(await rest(two)), "twoover");
  const large = connected(address);
  const data = Buffer.alloc(10_000_000, "0123456789abcdef0");
  large.end(data);
  const echoed = await rest(large);
  assert.ok(echoed.equals(Buffer.concat([data, Buffer.from("over")])));
  // More than are passed on at once.
  const many = Array.from({ length: 40 }, async (_, number) => {
    const socket = connected(address);
    socket.end(`${number}`);
    assert.equal(String(await rest(socket)), `${number}over`);
  });
  await Promise.all(many);
  const left = connected(address);
  left.write("x");
  await once(left, "data");
  const reset = once(left, "error");
  await address.close();
  assert.equal((await reset)[0].code, "ECONNRESET");
  await assert.rejects(once(connected(address), "connect"), { code: "ECONNREFUSED" });
});

both("what cannot be reached says why", ECHO, async (sandbox, client) => {
  const failed = [];
  const address = await sandbox.ports.forward(7001, { onError: (error) => failed.push(error) });
  const [error] = await once(connected(address), "error");
  assert.equal(error.code, "ECONNRESET");
  assert.ok(failed.length === 1 && failed[0] instanceof NotFound, failed);
  await assert.rejects(sandbox.ports.forward(7000, { localPort: address.port }), /cannot listen at 127.0.0.2:.*EADDRINUSE/);
  await address.close();
  for (const host of ["127.0.0.1", "0.0.0.0", "localhost", "::1", "", "127.0.0.256", "127.1"]) {
    await assert.rejects(sandbox.ports.forward(7000, { host }), (error) => error instanceof RingfenceError && /this machine alone/.test(error.message));
  }
  const closed = await Sandbox.create({ client });
  await assert.rejects(closed.ports.forward(7000), /without ports.*ports: true/);
  await closed.kill();
});

both("a client who does not read holds up no end", FULL, async (sandbox, _, said) => {
  const address = await sandbox.ports.forward(7002);
  const socket = connected(address);
  await once(socket, "connect");
  assert.equal(new TextDecoder().decode((await said.next()).value.data), "full\n");
  await address.close();
  // Node.js takes the reset for an end if it has not read what came before.
  socket.destroy();
});

both("clients that have gone keep no room", FULL, async (sandbox) => {
  const { open, silence } = limits;
  Object.assign(limits, { open: 2, silence: 300 });
  try {
    const failed = new EventEmitter();
    const failure = async () => (await once(failed, "failure"))[0].message;
    const address = await sandbox.ports.forward(7003, { onError: (error) => failed.emit("failure", error) });
    const [one, two] = [connected(address), connected(address)];
    await Promise.all([once(one, "connect"), once(two, "connect")]);
    let said = failure();
    assert.equal(await resetOf(connected(address)), "ECONNRESET");
    assert.match(await said, /there are 2 others/);
    said = failure();
    two.end();
    assert.equal(await resetOf(two), "ECONNRESET");
    assert.match(await said, /nothing for 0.3 s/);
    // There is room again, and who has not ended stays.
    const three = connected(address);
    said = failure();
    three.end();
    assert.equal(await resetOf(three), "ECONNRESET");
    assert.match(await said, /nothing for 0.3 s/);
    assert.ok(!one.destroyed);
    one.on("error", () => {});
    await address.close();
  } finally {
    Object.assign(limits, { open, silence });
  }
});

both("`close` throws what `onError` has thrown", FULL, async (sandbox) => {
  const address = await sandbox.ports.forward(7001, {
    onError: async () => {
      throw new TypeError("of the callback");
    },
  });
  const [error] = await once(connected(address), "error");
  assert.equal(error.code, "ECONNRESET");
  await assert.rejects(address.close(), /of the callback/);
  // The reset does not wait for the callback.
  let goOn;
  const slow = await sandbox.ports.forward(7001, { onError: () => new Promise((resolve) => (goOn = resolve)) });
  assert.equal((await once(connected(slow), "error"))[0].code, "ECONNRESET");
  goOn();
  await slow.close();
});
