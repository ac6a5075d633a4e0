import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";

import { Client, NotFound, RingfenceError, Sandbox } from "ringfence";

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

/** Runs a test with a sandbox that echoes at its port 7000, over the socket, and over TCP with a key. */
function both(name, work) {
  for (const surface of ["socket", "tcp"]) {
    test(`${name} (${surface})`, async () => {
      const client = surface === "socket" ? new Client({ socket: server.socket }) : new Client({ url: server.url, apiKey: KEY });
      const sandbox = await Sandbox.create({ client, ports: true, pids: 256 });
      try {
        const program = await sandbox.commands.start(["python3", "-c", ECHO]);
        for await (const { data } of program.stream()) {
          assert.equal(new TextDecoder().decode(data), "ready\n");
          break;
        }
        await work(sandbox, client);
      } finally {
        await sandbox.kill();
      }
    });
  }
}

const connected = ({ host, port }) => connect({ host, port, allowHalfOpen: true });

async function rest(socket) {
  const pieces = [];
  for await (const piece of socket) pieces.push(piece);
  return Buffer.concat(pieces);
}

both("both directions go on at once", async (sandbox) => {
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

both("what cannot be reached says why", async (sandbox, client) => {
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
