#!/usr/bin/env node
// Starts the program of the package for this machine, and ends as it does.

import { spawn } from "node:child_process";
import { constants } from "node:os";
import process from "node:process";

import { PACKAGE, packed } from "../src/program.js";

function fail(message, hint) {
  console.error(`error: ${message}`);
  console.error(`hint: ${hint}`);
  process.exit(125);
}

function found() {
  let program;
  try {
    program = packed();
  } catch (error) {
    fail(error.message, "the client works here, with a server on another machine");
  }
  if (program === undefined) {
    fail(`${PACKAGE} with the program is not installed`, "the client works here, with a server on another machine");
  }
  return program;
}

const child = spawn(found(), process.argv.slice(2), { stdio: "inherit" });

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
