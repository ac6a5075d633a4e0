// Splits Pyodide's WebAssembly: what most programs run, which V8 then has to look through at each start, and the rest, which is
// loaded when something first calls it. This is put before worker.js.
//
// Both parts number their functions as the whole does, so no code is rewritten: the first part has, for a function that it lacks, one
// that calls it through a table, and the rest is the whole once more, with the memory, tables, globals and tags of the first.

const [TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, ELEMENT, CODE, DATA, DATA_COUNT, TAG] = [
  1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13,
];
/** Kinds of imports and exports, and where what is no function is defined. */
const KINDS = [[1, TABLE], [2, MEMORY], [3, GLOBAL], [4, TAG]];
/** Where the two parts have their common things from, and what these are called before their number. */
const SHARED = "ringfence";
/** A function that is no longer than this is in the first part anyway. */
const SHORT = 48;

const number = (value) => {
  const bytes = [];
  for (; value > 127; value >>>= 7) bytes.push(value & 127 | 128);
  return [...bytes, value];
};
/** `i32.const`, of what is not negative. */
const constant = (value) => {
  const bytes = [];
  for (; value > 63; value >>>= 7) bytes.push(value & 127 | 128);
  return [0x41, ...bytes, value];
};
const sized = (bytes) => [number(bytes.length), bytes];
const text = (value) => sized(new TextEncoder().encode(value));

function joined(parts) {
  const flat = parts.flat(Infinity).map((part) => typeof part === "number" ? [part] : part);
  const whole = new Uint8Array(flat.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of flat) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Reads what WebAssembly consists of. What Pyodide has no use for is an error. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  byte() {
    return this.bytes[this.at++];
  }

  number() {
    for (let value = 0, shift = 0;; shift += 7) {
      const byte = this.byte();
      value |= (byte & 127) << shift;
      if (byte < 128) return value >>> 0;
    }
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  list(read) {
    return Array.from({ length: this.number() }, read);
  }

  /** What `read` goes over, as it stands there. */
  over(read) {
    const start = this.at;
    read();
    return this.bytes.subarray(start, this.at);
  }

  value() {
    const type = this.byte();
    if (type < 0x69 || type > 0x7f) throw new Error(`a type ${type} is not known here`);
  }

  limits() {
    for (let left = this.byte() & 1; left >= 0; left--) this.number();
  }

  /** A constant expression. */
  expression() {
    for (;;) {
      const code = this.byte();
      if (code === 0x0b) return;
      else if (code === 0xd0) this.byte();
      else if ([0x23, 0x41, 0x42, 0xd2].includes(code)) while (this.byte() > 127);
      else throw new Error(`a constant of ${code} is not known here`);
    }
  }

  /** What has this kind, without its name. */
  described(kind) {
    return this.over(() => {
      if (kind === 0) this.number();
      else if (kind === 1) this.value(), this.limits();
      else if (kind === 2) this.limits();
      else if (kind === 3) this.value(), this.byte();
      else this.byte(), this.number();
    });
  }
}

/** The parts of a module that matter here. */
function dissected(bytes) {
  const reader = new Reader(bytes);
  reader.take(8);
  const sections = [];
  while (reader.at < bytes.length) sections.push({ id: reader.byte(), body: reader.take(reader.number()) });
  const within = (id) => new Reader(sections.find((section) => section.id === id)?.body ?? [0]);
  const types = within(TYPE);
  const imports = within(IMPORT);
  const functions = within(FUNCTION);
  const code = within(CODE);
  const counts = [0, 0, 0, 0, 0];
  imports.list(() => {
    imports.take(imports.number());
    imports.take(imports.number());
    const kind = imports.byte();
    counts[kind]++;
    imports.described(kind);
  });
  const defined = KINDS.map(([kind, id]) => {
    const inside = within(id);
    return inside.list(() => {
      const description = inside.described(kind);
      if (kind === 3) inside.expression();
      return description;
    });
  });
  return {
    sections,
    // How many parameters and results.
    types: types.list(() => {
      if (types.byte() !== 0x60) throw new Error("a type is no function's");
      return [types.list(() => types.value()).length, types.list(() => types.value()).length];
    }),
    imported: counts,
    functions: functions.list(() => functions.number()),
    defined,
    bodies: code.list(() => code.take(code.number())),
  };
}

/** A section with more in its list. */
function longer(body, more) {
  const reader = new Reader(body);
  return [number(reader.number() + more.length), body.subarray(reader.at), more];
}

/** The module anew, with other bodies of some sections; one of null is left out. */
function assembled({ sections }, changed) {
  const parts = [[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]];
  for (const { id, body } of sections) {
    const other = changed[id] === undefined ? body : changed[id];
    if (other !== null) parts.push(id, sized(joined([other])));
  }
  return joined(parts);
}

const exported = (name, kind, index) => [text(name), kind, number(index)];

/** The module, which notes in a memory of its own which functions were called. */
function watched(bytes) {
  const module = dissected(bytes);
  const memory = module.imported[2] + module.defined[1].length;
  const bodies = module.bodies.map((body, index) => {
    const reader = new Reader(body);
    const locals = reader.over(() => reader.list(() => (reader.number(), reader.value())));
    return sized(joined([locals, [0x41, 0, 0x41, 1, 0x3a, 0x40, memory], number(index), body.subarray(reader.at)]));
  });
  const section = (id) => module.sections.find((section) => section.id === id).body;
  return assembled(module, {
    [MEMORY]: longer(section(MEMORY), [[0, 1 + (module.bodies.length >>> 16)]]),
    [EXPORT]: longer(section(EXPORT), [exported(SHARED, 2, memory)]),
    [CODE]: [number(bodies.length), bodies],
  });
}

/** The two parts of the module; the first has no data either, as its memory is that of the snapshot. */
function split(bytes, called) {
  const module = dissected(bytes);
  const { types, imported, functions, defined } = module;
  const counts = [0, ...KINDS.map(([kind], index) => imported[kind] + defined[index].length)];
  const [, table, , loaded] = counts;
  const nothing = types.findIndex(([parameters, results]) => parameters + results === 0);
  const lacking = module.bodies.flatMap((body, index) => called(index) || body.length <= SHORT ? [] : [index]);
  const bodies = module.bodies.map(sized);
  lacking.forEach((index, place) => {
    const type = functions[index];
    const call = (type, place) => [constant(place), 0x11, number(type), number(table)];
    const parameters = Array.from({ length: types[type][0] }, (_, each) => [0x20, number(each)]);
    const load = [0x23, number(loaded), 0x45, 0x04, 0x40, call(nothing, 0), 0x0b];
    bodies[index] = sized(joined([0, load, parameters, call(type, place + 1), 0x0b]));
  });
  const room = [0x70, 0, number(lacking.length + 1)];
  const flag = [0x7f, 1];
  const shared = KINDS.flatMap(([kind], index) => {
    const own = kind === 1 ? [room] : kind === 3 ? [flag] : [];
    return [...defined[index], ...own].map((what, place) => [kind, imported[kind] + place, what]);
  });
  const section = (id) => module.sections.find((section) => section.id === id).body;
  const name = (kind, index) => `${SHARED} ${kind} ${index}`;
  const first = assembled(module, {
    [TABLE]: longer(section(TABLE), [room]),
    [GLOBAL]: longer(section(GLOBAL), [[flag, 0x41, 0, 0x0b]]),
    [EXPORT]: longer(section(EXPORT), shared.map(([kind, index]) => exported(name(kind, index), kind, index))),
    [CODE]: [number(bodies.length), bodies],
  });
  const functionsBefore = imported[0];
  const filling = [2, number(table), constant(1), 0x0b, 0, number(lacking.length), lacking.map((index) => number(functionsBefore + index))];
  const rest = assembled(module, {
    [IMPORT]: longer(section(IMPORT), shared.map(([kind, index, what]) => [text(SHARED), text(name(kind, index)), kind, what])),
    [TABLE]: null,
    [MEMORY]: null,
    [TAG]: null,
    [GLOBAL]: null,
    [EXPORT]: null,
    [ELEMENT]: [1, filling],
    [DATA_COUNT]: null,
    [DATA]: null,
  });
  return { first, rest, table: name(1, table), loaded: name(3, loaded) };
}
