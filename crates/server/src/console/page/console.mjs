// The console: shows what the server says, and passes on what a person decides. Text goes in as text, never as markup.

/** How long a question must have been in sight before it can be approved: what is pressed as it appears was not meant for it. */
const LOOK_FIRST = 2000;
/** How long the questions below one that goes away are held, for they move under the pointer. */
const AFTER_MOVE = 1000;
/** How long a question that is over stays in its place. */
const STAY = 6000;
/** Silence after which the connection counts as lost; the server speaks every ten seconds. */
const SILENCE = 25000;
const RETRY = { first: 500, longest: 8000 };

const KEY = "ringfence.key";
const SESSION = "/session";
const KINDS = { command: "Run a command on this machine?", soft_timeout: "Let a tool go on beyond its time limit?", skill: "Let a program call a function of a skill?" };
const ENDS = { approved: "Approved", rejected: "Rejected", expired: "Expired", abandoned: "Taken back" };
const CHOICES = {
  once: { label: "Approve", key: "a" },
  session: { label: "Approve for the session", key: "s" },
  uses: { label: "Approve this and 10 more calls", key: "m", said: { uses: 10 } },
  always: { label: "Always approve this text", key: "" },
};

const $ = (id) => document.getElementById(id);

/** An element with attributes, or properties, and children; a text is a text node. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

class Unknown extends Error {}

async function ask(path, options = {}) {
  const key = localStorage.getItem(KEY);
  const headers = { "Ringfence-Key": key ?? "", ...options.headers };
  const response = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  if (response.status !== 401) return response;
  // A link that is refused says nothing of the session that is open: any site can open one. Nor does an older session.
  if (path !== SESSION && localStorage.getItem(KEY) === key) localStorage.removeItem(KEY);
  throw new Unknown();
}

async function read(path) {
  const response = await ask(path);
  if (!response.ok) throw new Error(await complaint(response));
  return response.json();
}

async function complaint(response) {
  const body = await response.json().catch(() => null);
  return body?.error ? `${body.error.message}. ${body.error.hint}.` : `The server answered ${response.status}.`;
}

function post(path, body, options = {}) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body), ...options });
}

/** Turns the ticket in the address, which no server is sent, into a session; it does not stay in the address. */
async function comeIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  history.replaceState(null, "", location.pathname);
  const response = await post(SESSION, { token });
  if (!response.ok) throw new Error(await complaint(response));
  localStorage.setItem(KEY, (await response.json()).key);
}

/** What an agent wrote: escapes are told from what looks like them, and so is what only looks like plain letters. */
function pieces(parts) {
  return parts.flatMap((part) => {
    if ("escape" in part) return [make("span", { class: "escape" }, part.escape)];
    const runs = part.plain.split(/([^\0-\x7f]+)/);
    return runs.map((run, at) => (at % 2 === 0 ? run : make("span", { class: "odd" }, run)));
  });
}

/** The first line of a text, for a list. */
function gist(parts) {
  const text = parts.map((part) => part.plain ?? part.escape).join("");
  return text.length > 300 ? text.slice(0, 300) : text;
}

function remaining(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  const [minutes, rest] = [Math.floor(seconds / 60), seconds % 60];
  return minutes === 0 ? `${rest}s` : `${minutes}m ${String(rest).padStart(2, "0")}s`;
}

function took(micros) {
  if (micros < 1000) return `${micros} µs`;
  if (micros < 1e6) return `${(micros / 1e3).toFixed(1)} ms`;
  return micros < 6e7 ? `${(micros / 1e6).toFixed(1)} s` : remaining(micros / 1e3);
}

function moment(value) {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return "";
  const today = date.toDateString() === new Date().toDateString();
  const day = today ? {} : { month: "short", day: "numeric" };
  const text = date.toLocaleString(undefined, { ...day, hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return make("time", { datetime: date.toISOString() }, text);
}

function risk(score) {
  const [level, words] =
    score <= 2 ? ["low", "low: it hardly changes anything"]
    : score <= 5 ? ["medium", "medium: what it does is not certain"]
    : score <= 8 ? ["high", "high: it changes things"]
    : ["severe", "severe: it may destroy something for good"];
  const scale = make("span", { class: "scale", "aria-hidden": "true" });
  for (let at = 1; at <= 10; at++) scale.append(make("i", { class: at <= score && "on" }));
  return make("span", { class: "risk", "data-level": level }, scale, `${score} of 10, ${words}`);
}

function facts(pairs) {
  const list = make("dl", { class: "facts" });
  for (const [name, value, across] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(make("div", { class: across && "across" }, make("dt", null, name), make("dd", null, value)));
  }
  return list;
}

function bullets(lines) {
  return lines.length === 0 ? null : make("ul", null, ...lines.map((line) => make("li", null, line)));
}

function ending(question) {
  const by = question.by ? ` by ${question.by}` : "";
  return (ENDS[question.state] ?? question.state) + by;
}

function say(text) {
  $("news").textContent = text;
}

/** The questions on show, by id: those that wait, and for a moment those that are over. */
const cards = new Map();
/** What is added to our clock to have the server's. */
let ahead = 0;

class Card {
  constructor(question) {
    this.question = question;
    this.over = false;
    this.busy = false;
    this.heldUntil = 0;
    this.left = make("p", { class: "left", role: "timer" });
    this.trouble = make("p", { class: "trouble", role: "alert" });
    this.acts = make("div", { class: "acts" });
    this.approvals = question.remember.map((remember) => this.button(remember));
    this.rejection = make("button", { type: "button", class: "no" }, "Reject", make("kbd", { "aria-hidden": "true" }, "R"));
    this.rejection.addEventListener("click", () => this.answer(false, "once"));
    this.acts.append(this.approvals[0], this.rejection, ...this.approvals.slice(1));
    this.element = this.draw();
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.tick();
  }

  draw() {
    const { id, kind, text, foreign, risk: score, reasons, scope, session, chat } = this.question;
    const title = make("h2", { id: `title-${id}` }, KINDS[kind] ?? kind);
    const who = [
      scope === "local" ? null : `for ${scope}`,
      session && `in session ${session}`,
      chat === "local" ? null : `asked in ${chat}`,
    ].filter(Boolean);
    return make(
      "article",
      { class: "card", tabindex: "-1", "aria-labelledby": `title-${id}`, "data-id": id, "data-state": "waiting" },
      make("header", null, title, this.left),
      who.length > 0 ? make("p", { class: "who" }, who.join(", ")) : null,
      make("pre", { class: "text", "aria-label": "The exact text" }, ...pieces(text)),
      foreign && make("p", { class: "foreign" }, foreign),
      facts([["Risk", score === null ? null : risk(score)], ["Why you are asked", bullets(reasons)]]),
      this.acts,
      this.trouble,
    );
  }

  button(remember) {
    const { label, key } = CHOICES[remember];
    const hint = key && make("kbd", { "aria-hidden": "true" }, key.toUpperCase());
    const button = make("button", { type: "button", class: remember === "once" && "yes" }, label, hint || null);
    button.addEventListener("click", () => this.answer(true, remember));
    return button;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const pressed = event.key.toLowerCase();
    const remember = this.question.remember.find((name) => CHOICES[name].key === pressed);
    if (pressed === "r") this.answer(false, "once");
    else if (remember) this.answer(true, remember);
    else return;
    event.preventDefault();
  }

  /** Keeps it from being approved for so long. */
  hold(milliseconds) {
    if (this.over) return;
    this.heldUntil = Math.max(this.heldUntil, performance.now() + milliseconds);
    this.update();
    setTimeout(() => this.update(), milliseconds + 20);
  }

  isHeld() {
    return performance.now() < this.heldUntil;
  }

  update() {
    const held = this.isHeld();
    for (const button of this.approvals) {
      button.setAttribute("aria-disabled", String(held || this.busy || this.over));
      button.classList.toggle("held", held && !this.over);
    }
    this.rejection.setAttribute("aria-disabled", String(this.busy || this.over));
  }

  tick() {
    if (this.over) return;
    const left = this.question.expires - (Date.now() + ahead);
    this.left.textContent = left > 0 ? `${remaining(left)} left` : "Time is up";
    this.left.classList.toggle("soon", left < 60000);
  }

  async answer(approved, remember) {
    if (this.over || this.busy || (approved && this.isHeld())) return;
    this.busy = true;
    this.trouble.textContent = "";
    this.update();
    try {
      const body = { approved, remember: CHOICES[remember].said ?? remember, digest: this.question.digest };
      const response = await post(`/api/approvals/${this.question.id}`, body);
      if (!response.ok) this.trouble.textContent = await complaint(response);
      await approvals();
    } catch (error) {
      if (error instanceof Unknown) showDoor();
      else this.trouble.textContent = "The server could not be reached. Nothing was answered, unless the list says so.";
    }
    this.busy = false;
    this.update();
  }

  /** It no longer waits: it says what became of it, stays for a moment, and goes. */
  end(question) {
    if (this.over) return;
    this.over = true;
    this.update();
    const words = question ? ending(question) : "No longer waiting";
    this.element.dataset.state = "over";
    this.left.textContent = "";
    const result = make("p", { class: "result" }, make("span", { class: "word", "data-word": question?.state }, words));
    const focused = this.acts.contains(document.activeElement);
    this.acts.replaceWith(result);
    if (focused) this.element.focus({ preventScroll: true });
    say(`${words}.`);
    setTimeout(() => this.leave(), STAY);
  }

  leave() {
    const focused = this.element.contains(document.activeElement);
    const all = [...cards.values()];
    const below = all.slice(all.indexOf(this) + 1);
    for (const card of below) card.hold(AFTER_MOVE);
    cards.delete(this.question.id);
    this.element.remove();
    if (focused) (below[0]?.element ?? $("waiting")).focus({ preventScroll: true });
    summary();
  }
}

function summary() {
  const waiting = [...cards.values()].filter((card) => !card.over).length;
  document.title = waiting > 0 ? `(${waiting}) Ringfence` : "Ringfence";
  $("count").textContent = waiting > 0 ? String(waiting) : "";
  $("none").hidden = cards.size > 0;
  $("keys").hidden = waiting === 0;
}

function showQuestions({ now, waiting, history }) {
  ahead = now - Date.now();
  const still = new Set(waiting.map((question) => question.id));
  for (const [id, card] of cards) {
    if (!still.has(id)) card.end(history.find((question) => question.id === id));
  }
  for (const question of waiting) {
    if (cards.has(question.id)) continue;
    const card = new Card(question);
    cards.set(question.id, card);
    // At the end: nothing that is on show moves.
    $("cards").append(card.element);
    card.hold(LOOK_FIRST);
    const score = question.risk === null ? "" : ` Risk ${question.risk} of 10.`;
    say(`A question waits for you: ${KINDS[question.kind] ?? question.kind}${score}`);
  }
  summary();
}

function step(by) {
  const all = [...cards.values()].map((card) => card.element);
  if (all.length === 0) return;
  const at = all.findIndex((element) => element.contains(document.activeElement));
  const next = at < 0 ? 0 : (at + by + all.length) % all.length;
  all[next].focus();
  all[next].scrollIntoView({ block: "nearest" });
}

/** Makes `list` show `items`, and leaves those that it shows already as they are: a person may have opened them. */
function fill(list, none, items, key, draw) {
  const shown = new Map([...list.children].map((element) => [element.dataset.key, element]));
  const wanted = items.map((item) => {
    const name = key(item);
    const element = shown.get(name) ?? make("li", { "data-key": name }, draw(item));
    shown.delete(name);
    return element;
  });
  for (const element of shown.values()) element.remove();
  wanted.forEach((element, at) => {
    if (list.children[at] !== element) list.insertBefore(element, list.children[at] ?? null);
  });
  none.hidden = items.length > 0;
}

function row(word, shown, when, more) {
  const head = make("summary", null, word, make("span", { class: "gist" }, ...shown), make("span", { class: "when" }, when));
  return make("details", null, head, make("div", { class: "more" }, ...more));
}

function decided(question) {
  const word = make("span", { class: "word", "data-word": question.state }, ENDS[question.state] ?? question.state);
  const more = [
    make("pre", { class: "text" }, ...pieces(question.text)),
    question.foreign && make("p", { class: "foreign" }, question.foreign),
    facts([
      ["By", question.by],
      ["For", question.scope],
      ["Session", question.session],
      ["Asked", moment(question.created)],
      ["Risk", question.risk === null ? null : risk(question.risk), true],
      ["Why it was asked", bullets(question.reasons), true],
    ]),
  ];
  return row(word, [gist(question.text)], moment(question.ended ?? question.created), more);
}

function used(run) {
  const refused = run.decision === "refused";
  const outcome = refused ? "refused" : run.outcome ?? "unknown";
  const word = make("span", { class: "word", "data-word": outcome }, outcome[0].toUpperCase() + outcome.slice(1));
  const more = [
    run.arguments.length > 0 ? make("pre", { class: "text" }, ...pieces(run.arguments)) : null,
    facts([
      ["For", run.scope],
      ["Came by", [run.surface, run.client].filter(Boolean).join(", ")],
      ["Session", run.session],
      ["Took", run.duration_micros === null ? null : took(run.duration_micros)],
      ["Decision", run.decision],
      ["Error", run.error],
      ["Judgement", run.judgement, true],
      ["Tried to reach", bullets(run.attempts), true],
    ]),
  ];
  const shown = [make("b", null, run.tool ?? "unknown"), " ", gist(run.arguments)];
  return row(word, shown, run.time ? moment(run.time) : "", more);
}

/** Reads a list again; while one reading is under way, at most one more is waiting. */
function reader(path, show) {
  let [running, again] = [null, false];
  const round = async () => {
    do {
      again = false;
      show(await read(path));
    } while (again);
  };
  return () => {
    if (running) again = true;
    else running = round().finally(() => (running = null));
    return running;
  };
}

const approvals = reader("/api/approvals", (listed) => {
  showQuestions(listed);
  fill($("history"), $("no-history"), listed.history, (question) => `${question.id} ${question.state}`, decided);
});
const runs = reader("/api/runs", (listed) => {
  fill($("runs"), $("no-runs"), listed.runs, (run) => String(run.sequence ?? run.time), used);
});

function showDoor(why) {
  if (why) $("door-why").textContent = why;
  $("door").hidden = false;
  $("inside").hidden = true;
  state("out", "Not connected");
  document.title = "Ringfence";
}

function state(name, words) {
  const link = $("link");
  if (link.dataset.state === name) return;
  if (name === "lost" || link.dataset.state === "lost") say(words);
  link.dataset.state = name;
  link.textContent = words;
}

/** Reads events until the connection ends. */
async function listen() {
  const abort = new AbortController();
  let watchdog = 0;
  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => abort.abort(), SILENCE);
  };
  alive();
  try {
    const response = await ask("/api/events", { signal: abort.signal });
    if (!response.ok) throw new Error(await complaint(response));
    const stream = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await stream.read();
      if (done) return;
      alive();
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) await heard(/^event: (.*)$/m.exec(block)?.[1]);
    }
  } finally {
    clearTimeout(watchdog);
    abort.abort();
  }
}

async function heard(event) {
  if (event === "approvals") await approvals();
  if (event === "runs") await runs();
  $("inside").hidden = false;
  $("door").hidden = true;
  state("live", "Live");
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Shows what the server says until it knows the session no more; `why` is what the person is told then. */
async function keepUp(why) {
  let wait = RETRY.first;
  for (;;) {
    try {
      await listen();
      wait = RETRY.first;
    } catch (error) {
      if (error instanceof Unknown) return showDoor(why);
    }
    state("lost", "Connection lost, trying again");
    await pause(wait);
    wait = Math.min(wait * 2, RETRY.longest);
  }
}

let keeping = null;

async function start() {
  let why;
  try {
    await comeIn();
  } catch (error) {
    why = error instanceof Unknown ? "The link was used, is older than ten minutes, or is not of the server that is running here." : error.message;
  }
  if (localStorage.getItem(KEY) === null) return showDoor(why);
  keeping ??= keepUp(why).finally(() => (keeping = null));
}

setInterval(() => cards.forEach((card) => card.tick()), 500);
addEventListener("hashchange", start);
document.addEventListener("visibilitychange", () => {
  // What came while nobody was looking has not been in sight.
  if (!document.hidden) cards.forEach((card) => card.hold(LOOK_FIRST));
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") step(1);
  if (event.key === "k") step(-1);
});
start();
