// The node types of this worker: inputs, outputs, and the function that runs.

const NUMBERS = {type: "object", additionalProperties: {type: "number"}};

// The volatility of each share's price: the standard deviation of its monthly returns.
export const volatility = {
  inputs: [
    {name: "prices", required: true},
    {name: "months", schema: {type: "integer", minimum: 2}},
  ],
  outputs: [{name: "volatility", schema: NUMBERS}],
  async run({prices, months = 12}, context) {
    const shaken = {};
    for (const [share, all] of Object.entries(prices.series)) {
      const known = all.slice(-months - 1);
      if (known.length > months) shaken[share] = deviation(known.slice(1).map((price, at) => price / known[at] - 1));
    }
    context.log(`${Object.keys(shaken).length} of ${Object.keys(prices.series).length} shares have ${months} months`);
    return {volatility: shaken};
  },
};

// The share with the lowest value; emits nothing when there is none, so that the nodes after it are skipped.
export const lowest = {
  inputs: [{name: "values", schema: NUMBERS, required: true}],
  outputs: [{name: "share", schema: {type: "string"}}],
  async run({values}) {
    const [first] = Object.entries(values).sort(([, one], [, other]) => one - other);
    return first ? {share: first[0]} : {};
  },
};

function deviation(numbers) {
  const mean = numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
  return Math.sqrt(numbers.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (numbers.length - 1));
}
