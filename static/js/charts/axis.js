// What curves are drawn over: their steps, or where each step lay in time, in passes over the data
// or in tokens. A metric says where; between its points one goes straight.
(() => {
  const concord = (window.concord ??= {});
  const WORDS = {
    step: (x) => `at ${x}`,
    time: (x) => `after ${concord.figures.number(x)} h`,
    epochs: (x) => `after ${concord.figures.number(x)} passes`,
    tokens: (x) => `after ${concord.figures.number(x)} tokens`,
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
    return to[low] + ((x - from[low]) / (from[low + 1] - from[low])) * (to[low + 1] - to[low]);
  };

  class Axis {
    // `pairs` of [step, place], as they were measured. What a resumed run took again counts once,
    // with its last time.
    constructor(pairs) {
      const kept = [];
      for (const [step, place] of pairs.toReversed()) {
        const next = kept.at(-1);
        if (next && step === next[0]) next[1] = Math.min(next[1], place);
        else if (!next || (step < next[0] && place < next[1])) kept.push([step, place]);
      }
      kept.reverse();
      if (kept.length && kept[0][0] > 0 && kept[0][1] > 0) kept.unshift([0, 0]);
      this.steps = kept.map(([step]) => step);
      this.places = kept.map(([, place]) => place);
    }

    get known() {
      return this.steps.length > 1;
    }

    at(step) {
      return between(this.steps, this.places, step);
    }

    step(place) {
      return between(this.places, this.steps, place);
    }
  }

  const STEPS = { known: true, at: (step) => step, step: (place) => place };
  const hours = (seconds, began) => (seconds - began) / 3600;

  // Of one run. Raw points of a curve by time are Unix seconds; of all others they are steps.
  const axisOf = (source, axis) => {
    if (axis === "step") return STEPS;
    const series = source.series.get(source.axes[axis]);
    if (!series) return new Axis([]);
    const began = source.began ?? series.steps[0];
    const pairs = series.steps
      .map((at, i) => (axis === "time" ? [series.values[i], hours(at, began)] : [at, series.values[i]]))
      .filter(([step, place]) => step !== null && place !== null);
    return new Axis(pairs);
  };
  const clockOf = (source, first) => {
    const began = source.began ?? first ?? 0;
    return { known: true, at: (seconds) => hours(seconds, began), step: (x) => began + 3600 * x };
  };

  Object.assign(concord, { axes: { axisOf, clockOf, WORDS } });
})();
