// Errors. A program that fails is none of them: its result says how it ended.

/** Characters that a terminal obeys, that turn or break a line, or that no encoding has. */
const CONTROL = /[\p{Cc}\u2028-\u202e\u2066-\u2069\p{Cs}]/gu;

const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeOf(character) {
  const digits = character.charCodeAt(0).toString(16);
  return SHORT[character] ?? (digits.length > 2 ? `\\u${digits}` : `\\x${digits.padStart(2, "0")}`);
}

/** Returns a text from elsewhere on one line, with escapes such as `\x1b` for control characters. */
export const escaped = (text) => text.replace(CONTROL, escapeOf);

// Names and other libraries' errors can be anybody's words, too. The log of a server has lines.
const escapedLines = (text) => String(text).split("\n").map(escaped).join("\n");

export class RingfenceError extends Error {
  constructor(message, hint = "", options = {}) {
    [message, hint] = [escapedLines(message), escapedLines(hint)];
    super(hint ? `${message} (hint: ${hint})` : message, options);
    this.name = new.target.name;
    this.hint = hint;
  }
}

export class ServerUnavailable extends RingfenceError {}
export class ServerGone extends RingfenceError {}
export class IncompatibleServer extends RingfenceError {}

export class ApiError extends RingfenceError {
  constructor(type, message, hint, { status = 0, requestId, retryAfter } = {}) {
    super(message, hint);
    Object.assign(this, { type, status, requestId, retryAfter });
  }
}

export class InvalidArguments extends ApiError {}
export class Unauthenticated extends ApiError {}
export class PermissionDenied extends ApiError {}
export class Blocked extends ApiError {}
export class Rejected extends ApiError {}
export class NotFound extends ApiError {}
export class MethodNotAllowed extends ApiError {}
export class Conflict extends ApiError {}
export class InProgress extends Conflict {}
export class LimitExceeded extends ApiError {}
export class Busy extends ApiError {}
export class NotSupported extends ApiError {}
export class Cancelled extends ApiError {}
export class InternalError extends ApiError {}
export class RuntimeUnavailable extends ApiError {}
export class DeadlineExceeded extends ApiError {}
export class ApprovalTimeout extends ApiError {}

export class CommandFailed extends RingfenceError {
  constructor(result) {
    const ended = result.outcome === "exited" ? "" : ` (${result.outcome})`;
    super(`the command ended with the status ${result.exitCode}${ended}${lastLine(result.stderr)}`);
    this.result = result;
  }
}

/** Characters of a command's output in a message. */
const MAX_LINE = 300;

/** Returns the last line of an output that has text, behind a colon. */
function lastLine(output) {
  const end = output.trimEnd().slice(-MAX_LINE - 1);
  const line = end.slice(end.lastIndexOf("\n") + 1).trim();
  const shown = printable(line);
  if (!shown) return "";
  return shown.length <= MAX_LINE ? `: ${shown}` : `: …${shown.slice(-MAX_LINE)}`;
}

/** Replaces control characters: a terminal obeys them, and a program that nobody trusts wrote them. */
export const printable = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");

/** The class of each type of the API. */
export const BY_TYPE = {
  invalid_arguments: InvalidArguments,
  unauthenticated: Unauthenticated,
  permission_denied: PermissionDenied,
  blocked: Blocked,
  rejected: Rejected,
  not_found: NotFound,
  method_not_allowed: MethodNotAllowed,
  conflict: Conflict,
  in_progress: InProgress,
  limit_exceeded: LimitExceeded,
  busy: Busy,
  not_supported: NotSupported,
  cancelled: Cancelled,
  internal: InternalError,
  runtime_unavailable: RuntimeUnavailable,
  timeout: DeadlineExceeded,
  approval_timeout: ApprovalTimeout,
};

/** Parts of hints that speak of HTTP or the command line, and what this package has in their place. */
const OWN_WORDS = [
  [/^GET \/openapi\.json describes the body$/, ""],
  [/"stdin": true/, "stdin: true"],
  [/`ringfence sandbox resume [^`]*`, or POST \S+\/resume/, "`sandbox.resume()`"],
  [/`ringfence sandbox ls`, or GET \/v1\/sandboxes, lists/, "`Sandbox.list()` lists"],
  [/`--timeout 4h`, or `timeout` of POST \/v1\/sandboxes/, "`timeout`"],
  [/`ringfence sandbox timeout`, or POST \S+\/timeout/, "`sandbox.setTimeout()`"],
  [/GET \/v1\/approvals lists/, "`client.approvals.list()` lists"],
  [/GET \/v1\/runs lists/, "`client.runs.list()` lists"],
  [/GET \/v1\/audit\/verify has answered/, "`client.audit.verify()` has returned"],
];

const ownHint = (hint) => OWN_WORDS.reduce((text, [pattern, own]) => text.replace(pattern, own), hint);

const textOf = (value) => (typeof value === "string" ? escaped(value) : "");

/** Returns the error for `{"error": {"type", "message", "hint"}}`. */
export function ofBody(body, facts = {}) {
  const error = body?.error;
  if (typeof error?.type !== "string") {
    return new IncompatibleServer(
      `the answer, of the status ${facts.status}, is not one of Ringfence`,
      "check that the address is a Ringfence server's, and what proxies stand before it",
    );
  }
  const kind = Object.hasOwn(BY_TYPE, error.type) ? BY_TYPE[error.type] : ApiError;
  // Callers of functions see no body: a member of one is named as their option is. What is below it has names of their own.
  const message = textOf(error.message).replace(/^the body does not match the schema: (`[^`.[]*)?/, (_, member = "") =>
    member.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()),
  );
  return new kind(error.type, message, ownHint(textOf(error.hint)), facts);
}
