// Installs packages of npm in a fence, and writes them to standard output as an archive.
//
// It runs as a guest: whoever reads the archive believes nothing of it.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

const NO_INSTALLER = 3;
const NOT_INSTALLED = 4;
const NOT_NODE = 6;

// Authorities that this machine trusts, those of a company included, where distributions keep them.
const AUTHORITIES = ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt'];
// A directory below this one for each package, named by it and its version. No package of npm can have the name.
const NAMES = '.packages';
// npm's list of the packages that it has installed.
const LOCK = '.package-lock.json';
// The directory of the programs that packages bring.
const PROGRAMS = '.bin';
const BLOCK = 512;

// Returns the program of npm: that of this Node.js, else that of a distribution.
function installer() {
    const prefix = path.dirname(path.dirname(process.execPath));
    const places = [`${prefix}/lib/node_modules`, '/usr/lib/node_modules', '/usr/local/lib/node_modules', '/usr/share/nodejs'];
    const found = places.map((place) => `${place}/npm/bin/npm-cli.js`).find((program) => fs.existsSync(program));
    return found || process.exit(NO_INSTALLER);
}

function install(directory, registry, trusted, requirements) {
    const program = installer();
    const dependencies = Object.fromEntries(requirements.map((requirement) => {
        const at = requirement.indexOf('@', 1);
        return at < 0 ? [requirement, '*'] : [requirement.slice(0, at), requirement.slice(at + 1)];
    }));
    fs.mkdirSync(directory);
    fs.writeFileSync(path.join(directory, 'package.json'), JSON.stringify({ private: true, dependencies }));
    // The files of configuration of this machine are not in the fence, and npm shall not look for them.
    const options = ['--userconfig=/dev/null/user', '--globalconfig=/dev/null/global', `--registry=${registry}`];
    options.push('--ignore-scripts', '--no-bin-links', '--no-package-lock', '--no-audit', '--no-fund');
    // npm obeys the `.npmrc` of a git repository, which may name a program.
    options.push('--allow-git=none', '--git=/nonexistent');
    options.push('--no-update-notifier', '--no-progress', '--no-color', '--loglevel=error', '--logs-max=0', '--cache=/tmp/cache');
    options.push('--fetch-retries=2', '--fetch-retry-mintimeout=500', '--fetch-retry-maxtimeout=2000', '--fetch-timeout=20000');
    if (trusted !== '-') {
        // Such a registry is reached by the proxy, and may name itself with `https` in its pages.
        options.push(`--replace-registry-host=${trusted}`);
    }
    const authorities = AUTHORITIES.filter((file) => fs.existsSync(file)).slice(0, 1);
    options.push(...authorities.map((file) => `--cafile=${file}`));
    // Standard output is the archive's.
    const stdio = ['ignore', 2, 2];
    const ended = spawnSync(process.execPath, [program, 'install', ...options], { cwd: directory, stdio });
    if (ended.status !== 0) {
        process.exit(NOT_INSTALLED);
    }
}

// Returns npm's list of what it has installed, and removes it.
function takeList(modules) {
    const lock = path.join(modules, LOCK);
    const installed = JSON.parse(fs.readFileSync(lock, 'utf8')).packages;
    fs.unlinkSync(lock);
    return installed;
}

const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;

// Makes a script for each program that a package brings, where npm has links: the reader refuses those.
function makePrograms(modules, seen, installed) {
    const directory = path.join(modules, PROGRAMS);
    for (const [place, { bin }] of Object.entries(installed)) {
        const own = place.slice('node_modules/'.length);
        // Those of packages inside another are that one's alone.
        for (const [name, file] of own.includes('node_modules/') ? [] : Object.entries(bin ?? {})) {
            const program = path.join(modules, own, file);
            if (!fs.existsSync(program)) {
                continue;
            }
            const isScript = /^#!.*\bnode\b/.test(fs.readFileSync(program, 'latin1').slice(0, 256));
            const command = [...(isScript ? [process.execPath] : []), path.join(seen, own, file)].map(quoted).join(' ');
            fs.chmodSync(program, 0o755);
            fs.mkdirSync(directory, { recursive: true });
            fs.writeFileSync(path.join(directory, path.basename(name)), `#!/bin/sh\nexec ${command} "$@"\n`, { mode: 0o755 });
        }
    }
}

// Makes the directories by which the names and versions of the packages are known.
function nameAll(modules, installed) {
    for (const [place, { version, name: real, inBundle }] of Object.entries(installed)) {
        // What a package brings inside of it may have any name.
        if (inBundle) {
            continue;
        }
        const name = real ?? place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length);
        fs.mkdirSync(path.join(modules, NAMES, `${name}@${version}`), { recursive: true });
    }
}

// Standard output may be a pipe that does not block: a write to a full one fails with EAGAIN.
function write(bytes) {
    for (let written = 0; written < bytes.length;) {
        try {
            written += fs.writeSync(1, bytes, written);
        } catch (error) {
            if (error.code !== 'EAGAIN') {
                throw error;
            }
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
        }
    }
}

function writePadded(bytes) {
    write(bytes);
    write(Buffer.alloc((BLOCK - bytes.length % BLOCK) % BLOCK));
}

function header(name, type, size, mode) {
    const block = Buffer.alloc(BLOCK);
    const octal = (number, length) => number.toString(8).padStart(length - 1, '0');
    block.write(name, 0, 100);
    block.write(octal(mode, 8), 100);
    block.write(octal(0, 8), 108);
    block.write(octal(0, 8), 116);
    block.write(octal(size, 12), 124);
    block.write(octal(0, 12), 136);
    block.write(' '.repeat(8), 148);
    block.write(type, 156);
    block.write('ustar\u000000', 257);
    const sum = block.reduce((total, byte) => total + byte, 0);
    block.write(`${octal(sum, 7)}\0 `, 148);
    return block;
}

// Writes a member, its name in an extended header: those of plain ones have at most 100 bytes.
function writeMember(name, type, mode, content) {
    const record = `path=${name}\n`;
    let length = Buffer.byteLength(record) + 2;
    while (`${length} `.length + Buffer.byteLength(record) !== length) {
        length += 1;
    }
    const records = Buffer.from(`${length} ${record}`);
    write(header('path', 'x', records.length, 0o644));
    writePadded(records);
    write(header('member', type, content.length, mode));
    writePadded(content);
}

// Writes a directory. A link or a special file has its type, for which the reader refuses it.
function writeTree(root, below) {
    for (const entry of fs.readdirSync(path.join(root, below), { withFileTypes: true })) {
        const name = path.join(below, entry.name);
        const { mode } = fs.lstatSync(path.join(root, name));
        if (entry.isDirectory()) {
            writeMember(name, '5', 0o755, Buffer.alloc(0));
            writeTree(root, name);
        } else if (entry.isFile()) {
            writeMember(name, '0', mode & 0o777, fs.readFileSync(path.join(root, name)));
        } else {
            writeMember(name, entry.isSymbolicLink() ? '2' : '6', 0o644, Buffer.alloc(0));
        }
    }
}

function main(registry, trusted, seen, ...requirements) {
    if (globalThis.Deno) {
        process.exit(NOT_NODE);
    }
    const directory = '/tmp/packages';
    install(directory, registry, trusted, requirements);
    const modules = path.join(directory, 'node_modules');
    const installed = takeList(modules);
    makePrograms(modules, seen, installed);
    nameAll(modules, installed);
    writeTree(modules, '');
    write(Buffer.alloc(2 * BLOCK));
}

main(...process.argv.slice(2));
