#!/usr/bin/env node
// Starts the program beside this file, and ends as it does.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { join } = require("node:path");

const child = spawn(join(__dirname, "ringfence"), process.argv.slice(2), { stdio: "inherit" });

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
