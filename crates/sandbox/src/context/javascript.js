// Evaluates the code that comes on descriptor 3, a JSON value a line, and answers with one. The inspector evaluates it as
// the console of a browser does: `let` and `const` may be declared again, and `await` works at the top.
'use strict';
const inspector = require('node:inspector');
const { createRequire } = require('node:module');
const { Socket } = require('node:net');
const path = require('node:path');
const { performance } = require('node:perf_hooks');
const util = require('node:util');
const vm = require('node:vm');

const MAX_VALUE = 64 * 1024;
// The first frame of a stack that is ours: the stack is cut there.
const OWN_FRAMES = /\n +at (?:Session\.post|post|Object\.runInThisContext|Script\.runInThisContext) /;
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

function evaluate(number, code) {
    return new Promise((resolve) => {
        interrupt = () => resolve({ status: 130 });
        const parameters = {
            expression: `${code}\n//# sourceURL=cell-${number}.js`,
            replMode: true,
            awaitPromise: true,
        };
        const post = () => session.post('Runtime.evaluate', parameters, (error, evaluated) => {
            // The inspector swallows what its callback throws, as code of the value's class may.
            try {
                resolve(error ? failed(error.message) : answer(number, evaluated));
            } catch {
                resolve(failed('Uncaught exception while the value was shown'));
            }
        });
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
        const { number, code, variables, after_interrupt } = JSON.parse(line);
        turn = turn.then(async () => {
            if (after_interrupt) {
                await awaitPendingInterrupt();
            }
            interrupted = false;
            const restore = setVariables(variables);
            const ended = await evaluate(number, code);
            restore();
            bridge.write(`${JSON.stringify({ number, ...ended })}\n`);
        });
    }
});
bridge.on('end', () => process.exit());
