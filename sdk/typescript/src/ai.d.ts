import type { Experimental_SandboxSession, StopCondition, Tool } from "ai";

import type { Outcome, Sandbox, Size, Time } from "./index.js";

export interface ToolOptions {
  /** Time of a call; ten minutes by default. Then the command is killed, and code is interrupted. */
  timeout?: Time;
  /** Characters of each stream that an answer keeps; 30,000 by default. */
  maxOutput?: Size;
}

export interface CodeInput {
  code: string;
  language?: "python" | "bash" | "javascript";
}

export interface CodeOutput {
  /** The text of the last expression's value. */
  text?: string;
  stdout: string;
  stderr: string;
  /** The reason for which the code did not reach its end: an exception, or an outcome such as `timed_out`. */
  error?: { name: string; value: string };
  outcome: Outcome;
  truncated: boolean;
  /** Pictures in base64, which the model gets as files. A guest wrote them. */
  pictures: { mediaType: "image/png" | "image/jpeg"; data: string }[];
}

export interface CommandInput {
  command: string;
}

export interface CommandOutput {
  stdout: string;
  stderr: string;
  /** As a shell has it: 128 + N after the signal N, 124 at its time. */
  exitCode: number;
  outcome: Outcome;
  truncated: boolean;
}

/** Returns tools that run code and commands in a sandbox. */
export declare function sandboxTools(
  sandbox: Sandbox,
  options?: ToolOptions,
): { runCode: Tool<CodeInput, CodeOutput>; runCommand: Tool<CommandInput, CommandOutput> };

/** A condition for `stopWhen`: the last step failed for another reason than its program or its arguments. */
export declare const sandboxFailed: StopCondition<any>;

/** Returns a sandbox as the option `experimental_sandbox`. */
export declare function sandboxSession(
  sandbox: Sandbox,
  options?: {
    description?: string;
    /** Characters of each stream that `run` keeps, 1 MiB by default and at most. */
    maxOutput?: Size;
  },
): Experimental_SandboxSession;
