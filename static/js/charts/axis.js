// What curves are drawn over: their steps, or where each step lay in time, in passes over the data
// or in tokens. A metric says where; between its points one goes straight. Beyond them a clock goes on
// as fast as before; how much was read there nobody knows.
(() => {
  const concord = (window.concord ??= {});
  const WORDS = {
    step: (x) => `at ${x}`,
    time: (x) => `after ${concord.figures.number(x)} h`,
    epochs: (x) => `after ${concord.figures.number(x)} passes`,
    tokens: (x) => `after ${concord.figures.count(x)} tokens`,
  };

  // Along ascending `from`, the place in `to`; beyond the ends as steeply as at the end.
  const between = (from, to, x) => {
    let low = 0,
      high = from.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (from[middle] <= x) low = middle;
      else high = middle - 1;
    }
    const span = from[low + 1] - from[low]; // 0 at the end of steps that read nothing
    return span ? to[low] + ((x - from[low]) / span) * (to[low + 1] - to[low]) : to[low + 1];
  };

  class Axis {
    // `pairs` of [step, place], both ascending. `open`: it goes on beyond its ends.
    constructor(pairs, open) {
      if (pairs.length && pairs[0][0] > 0 && pairs[0][1] > 0) pairs.unshift([0, 0]);
      this.steps = pairs.map(([step]) => step);
      this.places = pairs.map(([, place]) => place);
      this.beginsAgain = false; // a count that does says nothing
      [this.first, this.last] = open ? [-Infinity, Infinity] : [this.steps[0], this.steps.at(-1)];
    }

    get known() {
      return this.steps.length > 1 && this.places.at(-1) > this.places[0];
    }

    // NaN where nobody knows.
    at(step) {
      return step >= this.first && step <= this.last ? between(this.steps, this.places, step) : Number.NaN;
    }

    step(place) {
      return between(this.places, this.steps, place);
    }
  }

  // What a resumed run took again counts once, with its last time.
  const lastTimes = (pairs) => {
    const kept = [];
    for (const [step, place] of pairs.toReversed()) {
      const next = kept.at(-1);
      if (next && step === next[0]) next[1] = Math.min(next[1], place);
      else if (!next || (step < next[0] && place < next[1])) kept.push([step, place]);
    }
    return kept.reverse();
  };
  const falls = (pairs) => pairs.some(([, place], i) => i > 0 && place < pairs[i - 1][1]);

  const STEPS = {
    known: true,
    first: -Infinity,
    last: Infinity,
    at: (step) => step,
    step: (place) => place,
  };
  const hours = (seconds, began) => (seconds - began) / 3600;

  // Of one run. Raw points of a curve by time are Unix seconds; of all others they are steps.
  const axisOf = (source, axis) => {
    if (axis === "step") return STEPS;
    const series = source.series.get(source.axes[axis]);
    if (!series) return new Axis([], false);
    const began = source.began ?? series.steps[0];
    const pairs = series.steps
      .map((at, i) => (axis === "time" ? [series.values[i], hours(at, began)] : [at, series.values[i]]))
      .filter(([step, place]) => step !== null && place !== null);
    if (axis === "time") return new Axis(lastTimes(pairs), true);
    if (falls(pairs)) return Object.assign(new Axis([], false), { beginsAgain: true });
    return new Axis(pairs, false);
  };
  const clockOf = (source, first) => {
    const began = source.began ?? first ?? 0;
    return {
      ...STEPS,
      at: (seconds) => hours(seconds, began),
      step: (x) => began + 3600 * x,
    };
  };

  Object.assign(concord, { axes: { axisOf, clockOf, WORDS } });
})();
