// Evaluates the code that comes on descriptor 3, a JSON value a line, and answers with one. The inspector evaluates it as
// the console of a browser does: `let` and `const` may be declared again, and `await` works at the top.
'use strict';
const inspector = require('node:inspector');
const nodeModule = require('node:module');
const { createRequire } = nodeModule;
const { Socket } = require('node:net');
const path = require('node:path');
const { performance } = require('node:perf_hooks');
const util = require('node:util');
const vm = require('node:vm');

const MAX_VALUE = 64 * 1024;
// The first frame of a stack that is ours: the stack is cut there.
const OWN_FRAMES = /\n +at (?:Session\.post|post|Object\.runInThisContext|Script\.runInThisContext) /;
const NAME = String.raw`[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*`;
// `import first, * as all from 'module'`, with `{ one, two as other }` in place of `* as all`.
const IMPORT = new RegExp(
    String.raw`import\s*(?:(?:(?<first>${NAME})\s*(?:,\s*(?=[*{])|(?=\s)))?(?:\*\s*as\s+(?<all>${NAME})|\{(?<names>[^{}]*)\})?\s*`
    + String.raw`\bfrom\s*)?(?<specifier>'[^'\\\n]*'|"[^"\\\n]*")[ \t]*(?:;|(?=\n|\r|$|\/\/|\/\*))`, 'yu');
const IMPORTED = new RegExp(String.raw`^(?<name>${NAME})(?:\s+as\s+(?<own>${NAME}))?$`, 'u');
const MAX_IMPORTS = 100;
// A word that may begin a dynamic import.
const DYNAMIC_IMPORT = /(?<![\p{ID_Continue}$\u200c\u200d#])import(?=\s*(?:\(|\/[*/]))/gu;
// In place of a dynamic import, and nowhere else, it keeps code from being compiled: it may name a property, and stand in a text.
const PROBE = 'extends';
// With this script on the stack, SIGINT ends code that is in a loop.
const run = new vm.Script(`globalThis[Symbol.for('ringfence.run')]()`);

const session = new inspector.Session();
session.connect();
globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'));

// Milliseconds to wait for a pending SIGINT, whose handler the code may have replaced.
const PENDING_INTERRUPT_TIMEOUT = 1000;
// Milliseconds of each of its two ways to arrive.
const PENDING_INTERRUPT_STEP = 20;
const now = performance.now.bind(performance);
// Ends the evaluation under way, if there is one.
let interrupt = () => {};
// Set once SIGINT has arrived for the last evaluation.
let interrupted = false;
let interruptArrived = () => {};
function noteInterrupt() {
    interrupted = true;
    interruptArrived();
}
process.on('SIGINT', () => {
    noteInterrupt();
    interrupt();
});
const reportUncaught = (error) => console.error(`Uncaught ${util.inspect(error).split(OWN_FRAMES)[0]}`);
process.on('uncaughtException', reportUncaught);
process.on('unhandledRejection', reportUncaught);

// Makes a function reachable for code that the engine compiles anew.
function expose(name, value) {
    Object.defineProperty(globalThis, Symbol.for(`ringfence.${name}`), { value, configurable: true });
}

// Waits for a SIGINT that was meant for the evaluation before, and may still be pending: a child process got it first, or it came as the code
// ended. Then Node.js keeps it, and ends the next script that SIGINT can end: one that does nothing takes the place of the next code.
async function awaitPendingInterrupt() {
    const deadline = now() + PENDING_INTERRUPT_TIMEOUT;
    while (!interrupted && now() < deadline) {
        expose('run', () => {
            const end = now() + PENDING_INTERRUPT_STEP;
            while (now() < end);
        });
        try {
            run.runInThisContext({ breakOnSigint: true });
        } catch {
            noteInterrupt();
            return;
        }
        await new Promise((resolve) => {
            interruptArrived = resolve;
            setTimeout(resolve, PENDING_INTERRUPT_STEP);
        });
    }
}

// Imports a module, which must have these names.
async function importModule(specifier, names) {
    const found = await import(specifier);
    const missing = names.find((name) => !(name in found));
    if (missing !== undefined) {
        throw new SyntaxError(`The requested module '${specifier}' does not provide an export named '${missing}'`);
    }
    return found;
}

// Returns code with a dynamic import in place of the static one at a place, on the same lines; nothing if it is written in another way.
function withDynamicImport(code, { lineNumber, columnNumber }) {
    const lines = code.split(/\r\n|[\n\r\u2028\u2029]/u);
    const ends = [...code.matchAll(/\r\n|[\n\r\u2028\u2029]/gu)];
    const before = lines[lineNumber] === undefined ? 0 : (ends[lineNumber - 1]?.index ?? 0) + (ends[lineNumber - 1]?.[0].length ?? 0);
    IMPORT.lastIndex = before + columnNumber;
    const found = IMPORT.exec(code);
    if (!found) {
        return undefined;
    }
    const { first, all, names, specifier } = found.groups;
    const pairs = first === undefined ? [] : [['default', first]];
    for (const part of (names ?? '').split(',').map((text) => text.trim()).filter((text) => text !== '')) {
        const { name, own } = IMPORTED.exec(part)?.groups ?? {};
        if (name === undefined) {
            return undefined;
        }
        pairs.push([name, own ?? name]);
    }
    const required = JSON.stringify(pairs.map(([name]) => name));
    const module = `await globalThis[Symbol.for('ringfence.import')](${specifier}, ${required})`;
    const object = `{ ${pairs.map(([name, own]) => `${name}: ${own}`).join(', ')} }`;
    let statement = `void ${module};`;
    if (all !== undefined) {
        statement = `const ${all} = ${module}, ${object} = ${all};`;
    } else if (pairs.length > 0) {
        statement = `const ${object} = ${module};`;
    }
    const kept = found[0].replace(/[^\n\r\u2028\u2029]/gu, '');
    return code.slice(0, found.index) + statement + kept + code.slice(IMPORT.lastIndex);
}

// Returns code without the static import for which the engine has refused to compile it.
function withoutImport(code, thrown) {
    const { stackTrace, exception } = thrown ?? {};
    const text = exception?.description;
    const isCompiling = stackTrace === undefined && typeof text === 'string';
    return isCompiling && text.split(OWN_FRAMES)[0] === 'SyntaxError: Cannot use import statement outside a module'
        ? withDynamicImport(code, thrown) : undefined;
}

// Imports a module for code whose own `import()` the inspector leaves without a loader.
function importDynamically(specifier, options) {
    return import(specifier, options);
}

// Returns `true` if the engine compiles code, as the body of a function in which `await` works. Runs nothing.
function compiles(code) {
    try {
        return new vm.Script(`(async () => {\n${code}\n})`) !== undefined;
    } catch {
        return false;
    }
}

// Returns code whose dynamic imports, of which the engine decides what is one, call our function, on the same lines.
function withImportFunction(code) {
    const words = [...code.matchAll(DYNAMIC_IMPORT)].slice(0, MAX_IMPORTS);
    if (words.length === 0 || !compiles(code)) {
        return code;
    }
    let rest = 0;
    let rewritten = '';
    for (const { 0: word, index } of words) {
        const after = index + word.length;
        if (!compiles(code.slice(0, index) + PROBE + code.slice(after))) {
            rewritten += `${code.slice(rest, index)}globalThis[Symbol.for('ringfence.dynamicImport')]`;
            rest = after;
        }
    }
    return rewritten + code.slice(rest);
}

// Returns JavaScript, on the same lines where the types can be blanked out.
function withoutTypes(code) {
    const strip = nodeModule.stripTypeScriptTypes;
    if (strip === undefined) {
        throw new Error(`TypeScript needs Node.js 22.13 or newer, and this is ${process.version}: name a newer one as sandbox.javascript`);
    }
    const emit = process.emitWarning;
    // It says that it is experimental.
    process.emitWarning = () => {};
    try {
        return strip(code);
    } catch (error) {
        if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') {
            throw error;
        }
        return strip(code, { mode: 'transform' });
    } finally {
        process.emitWarning = emit;
    }
}

function evaluateTyped(number, code) {
    try {
        return evaluate(number, withoutTypes(code));
    } catch (error) {
        return failed(`Uncaught ${error.name}: ${error.message}`);
    }
}

function evaluate(number, code) {
    expose('import', importModule);
    expose('dynamicImport', importDynamically);
    let imports = 0;
    return new Promise((resolve) => {
        interrupt = () => resolve({ status: 130 });
        const parameters = { replMode: true, awaitPromise: true };
        const evaluateCode = () => session.post('Runtime.evaluate', parameters, (error, evaluated) => {
            // The inspector swallows what its callback throws, as code of the value's class may.
            try {
                const rewritten = error || imports++ >= MAX_IMPORTS ? undefined : withoutImport(code, evaluated.exceptionDetails);
                if (rewritten !== undefined) {
                    code = rewritten;
                    post();
                    return;
                }
                resolve(error ? failed(error.message) : answer(number, evaluated));
            } catch {
                resolve(failed('Uncaught exception while the value was shown'));
            }
        });
        const post = () => {
            parameters.expression = `${withImportFunction(code)}\n//# sourceURL=cell-${number}.js`;
            evaluateCode();
        };
        expose('run', post);
        try {
            run.runInThisContext({ breakOnSigint: true });
        } catch {
            noteInterrupt();
            resolve({ status: 130 });
        }
    }).finally(() => { interrupt = () => {}; });
}

function answer(number, { result, exceptionDetails: thrown }) {
    if (thrown) {
        const { exception, lineNumber } = thrown;
        if (exception.subtype !== 'error') {
            return failed(`Uncaught ${util.inspect(valueOf(exception))}`);
        }
        const [stack] = exception.description.split(OWN_FRAMES);
        const place = stack.includes('\n    at ') ? '' : `\n    at cell-${number}.js:${lineNumber + 1}`;
        return failed(`Uncaught ${stack}${place}`);
    }
    if (result.type === 'undefined') {
        return { status: 0 };
    }
    const text = util.inspect(valueOf(result));
    return { status: 0, value: text.slice(0, MAX_VALUE), cut: text.length > MAX_VALUE };
}

function failed(text) {
    console.error(text);
    return { status: 1 };
}

// Returns the value that the inspector describes.
function valueOf(result) {
    if (result.objectId === undefined) {
        return 'unserializableValue' in result ? vm.runInThisContext(`(${result.unserializableValue})`) : result.value;
    }
    let found;
    expose('take', (value) => { found = value; });
    session.post('Runtime.callFunctionOn', {
        objectId: result.objectId,
        // As an argument, not as `this`, which would wrap a symbol in an object.
        arguments: [{ objectId: result.objectId }],
        functionDeclaration: `(value) => globalThis[Symbol.for('ringfence.take')](value)`,
    });
    session.post('Runtime.releaseObject', { objectId: result.objectId });
    return found;
}

// Sets environment variables, and returns a function that undoes it.
function setVariables(variables) {
    const environment = process.env;
    const before = Object.keys(variables).map((name) => [name, environment[name]]);
    Object.assign(environment, variables);
    return () => {
        for (const [name, value] of before) {
            if (value === undefined) {
                delete environment[name];
            } else {
                environment[name] = value;
            }
        }
    };
}

const bridge = new Socket({ fd: 3 });
let input = '';
let turn = Promise.resolve();
bridge.setEncoding('utf8');
bridge.on('data', (data) => {
    input += data;
    const lines = input.split('\n');
    input = lines.pop();
    for (const line of lines) {
        const { number, code, typed, variables, after_interrupt } = JSON.parse(line);
        turn = turn.then(async () => {
            if (after_interrupt) {
                await awaitPendingInterrupt();
            }
            interrupted = false;
            const restore = setVariables(variables);
            const ended = await (typed ? evaluateTyped : evaluate)(number, code);
            restore();
            bridge.write(`${JSON.stringify({ number, ...ended })}\n`);
        });
    }
});
bridge.on('end', () => process.exit());
