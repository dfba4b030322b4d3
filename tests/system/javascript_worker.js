// A process of the JavaScript worker for tests: its id and the address are its arguments.

import {appendFileSync} from "node:fs";
import {setTimeout as sleep} from "node:timers/promises";
import {Worker} from "../../examples/javascript/tradewind.js";

const [id, address, ledger] = process.argv.slice(2);

const nodes = {
  // Its first attempts, as many as `lingering` says, take a minute, later ones a moment; a line in the ledger says that each has begun.
  linger: {
    inputs: [{name: "lingering"}, {name: "ms"}],
    outputs: [{name: "attempt"}],
    async run({lingering = 0, ms = 0}, {signal, attempt}) {
      appendFileSync(ledger, `${id} ${attempt}\n`);
      await sleep(attempt <= lingering ? 60_000 : ms, undefined, {signal});
      return {attempt};
    },
  },
  // Never looks at its signal.
  deaf: {
    inputs: [{name: "lingering"}],
    async run() {
      appendFileSync(ledger, `${id} deaf\n`);
      await sleep(60_000);
    },
  },
  fail: {
    inputs: [{name: "fatal"}],
    async run({fatal = false}) {
      throw Object.assign(new RangeError("out of range"), {fatal});
    },
  },
  join: {
    inputs: [{name: "values", gather: true}, {name: "key"}],
    outputs: [{name: "joined"}, {name: "never"}],
    run: ({values, key}) => ({joined: `${values.join("-")} ${key}`}),
  },
};

const worker = new Worker({nodes, id, address});
process.on("SIGTERM", () => worker.leave());
try {
  await worker.run();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
