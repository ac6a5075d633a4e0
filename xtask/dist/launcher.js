#!/usr/bin/env node
// Starts the program beside this file, and ends as it does.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import process from "node:process";
import { fileURLToPath } from "node:url";

const { program } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
if (process.platform !== program.platform || process.arch !== program.arch) {
  console.error(`error: this package has the program for ${program.platform} on ${program.arch} alone`);
  console.error("hint: the client works here, with a server on another machine");
  process.exit(125);
}

const child = spawn(fileURLToPath(new URL("ringfence", import.meta.url)), process.argv.slice(2), { stdio: "inherit" });

// Signals of a terminal reach the program by themselves; others are passed on.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));

child.on("error", (error) => {
  console.error(`error: cannot start ringfence: ${error.message}`);
  process.exitCode = 125;
});
child.on("exit", (code, signal) => {
  process.exitCode = signal === null ? code : 128 + constants.signals[signal];
});
