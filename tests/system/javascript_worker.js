// The JavaScript worker as a process for tests; its arguments are its id, the address and the ledger.

import {appendFileSync} from "node:fs";
import {setTimeout as sleep} from "node:timers/promises";
import {Worker} from "../../examples/javascript/tradewind.js";

const [id, address, ledger] = process.argv.slice(2);

const nodes = {
  // The first `lingering` attempts take a minute, later ones `ms`; each writes a line into the ledger when it begins.
  linger: {
    inputs: [{name: "lingering"}, {name: "ms"}],
    outputs: [{name: "attempt"}],
    async run({lingering = 0, ms = 0}, {signal, attempt}) {
      appendFileSync(ledger, `${id} ${attempt}\n`);
      await sleep(attempt <= lingering ? 60_000 : ms, undefined, {signal});
      return {attempt};
    },
  },
  // Ignores its signal.
  deaf: {
    inputs: [{name: "lingering"}],
    async run() {
      appendFileSync(ledger, `${id} deaf\n`);
      await sleep(60_000);
    },
  },
  tell_key: {
    inputs: [{name: "item"}],
    outputs: [{name: "key"}],
    run: (_, {idempotencyKey}) => ({key: idempotencyKey}),
  },
  fail: {
    inputs: [{name: "fatal"}],
    async run({fatal = false}) {
      throw Object.assign(new RangeError("out of range"), {fatal});
    },
  },
  // Emits, logs or throws a text of as many MiB.
  large: {
    inputs: [{name: "how"}, {name: "mebibytes"}],
    outputs: [{name: "text"}],
    async run({how, mebibytes}, {log}) {
      const text = "x".repeat(mebibytes * 1024 * 1024);
      if (how === "throw") throw new Error(text);
      if (how === "log") log(text);
      return how === "emit" ? {text} : {};
    },
  },
  // Logs, reports and throws half a character.
  halve: {
    async run(_, {log, progress}) {
      log("\ud83d");
      progress(1, "\ud83d");
      throw Object.assign(new Error("\ud83d"), {name: "\ud83d"});
    },
  },
  chatter: {
    inputs: [{name: "lines"}],
    async run({lines}, {log, progress}) {
      for (let line = 0; line < lines; line++) {
        log(`line ${line}`);
        progress(1, `line ${line}`);
      }
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
