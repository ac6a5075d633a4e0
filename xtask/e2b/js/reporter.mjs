// Prints a line for each test, as pytest does with `-rA`. Names that occur again in a file get their number.

const names = new Map();

const line = (text) => text.split("\n")[0].slice(0, 200);

export default {
  onTestModuleCollected(module) {
    const seen = new Map();
    for (const { id, fullName } of module.children.allTests()) {
      // The reader of these lines takes this for the end of a name.
      const name = fullName.replaceAll(" - ", ": ");
      const times = (seen.get(name) ?? 0) + 1;
      seen.set(name, times);
      names.set(id, `${module.relativeModuleId}::${name}${times > 1 ? ` (${times})` : ""}`);
    }
  },
  onTestCaseResult(test) {
    const { state, errors } = test.result();
    if (state === "passed") console.log(`PASSED ${names.get(test.id)}`);
    if (state === "failed") console.log(`FAILED ${names.get(test.id)} - ${line(errors[0].message)}`);
  },
  onTestModuleEnd(module) {
    for (const { message } of module.errors()) console.log(`ERROR ${module.relativeModuleId} - ${line(message)}`);
  },
};
