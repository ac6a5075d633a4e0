import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { serve } from "../testing/server.js";

test("the guide prints what it says", async () => {
  const server = await serve();
  const guide = readFileSync(new URL("../../../docs/guide/typescript.md", import.meta.url), "utf8");
  const blocks = Array.from(guide.matchAll(/^```js\n(.*?)^```/gms), ([, block]) => block);
  assert.ok(blocks.length >= 5);
  const program = blocks.join("\n");
  const expected = Array.from(program.matchAll(/^\/\/> (.*)$/gm), ([, line]) => line);
  const ran = spawnSync(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: new URL("..", import.meta.url),
    env: server.env,
    encoding: "utf8",
  });
  assert.equal(ran.status, 0, ran.stderr);
  assert.deepEqual(ran.stdout.trim().split("\n"), expected);
  await server.end();
});
