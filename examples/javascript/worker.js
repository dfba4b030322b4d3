// `node worker.js`: offers the node types of nodes.js. TRADEWIND_ADDRESS names the servers, TRADEWIND_TOKEN identifies this worker.

import * as nodes from "./nodes.js";
import {Worker} from "./tradewind.js";

const worker = new Worker({
  nodes,
  address: process.env.TRADEWIND_ADDRESS,
  token: process.env.TRADEWIND_TOKEN,
});
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => worker.leave());
console.log(`offering ${Object.keys(nodes).join(", ")}`);
try {
  await worker.run();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
