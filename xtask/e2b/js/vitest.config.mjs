// The projects of E2B's own configurations but those for browsers. With SUITE_CLIENT, the tests import that package in place of the
// sources beside them.

import { existsSync } from "node:fs";

import reporter from "./reporter.mjs";

const client = process.env.SUITE_CLIENT;
// It leads the sources' requests to where mocks are; a package has none of its files.
const mocks = "tests/globalFetchFallback.setup.ts";

export default {
  resolve: { alias: client ? [{ find: /^(\.\.\/)+src(\/.*)?$/, replacement: client }] : [] },
  test: {
    include: ["tests/**/*.test.ts"],
    // Other runtimes, and the bundle, which nobody built.
    exclude: ["tests/runtimes/**", "tests/bundle/**", "**/*.browser.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
    setupFiles: !client && existsSync(mocks) ? [mocks] : [],
    reporters: [reporter],
  },
};
