// Numbers, words, colours and smoothing of the charts: nothing here touches the page's layout.
(() => {
  const concord = (window.concord ??= {});

  const number = (value) => {
    if (value === null || value === undefined) return "—";
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  };

  // 1.5M: for counts that are long. Ticks lie close together and need more digits than words do.
  const short = (digits) => {
    const format = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: digits });
    return (value) => format.format(value);
  };
  const count = short(4);
  const tick = short(7);

  // Exponential moving average without the bias towards the first value.
  const smoothed = (values, weight) => {
    let mean = 0,
      mass = 0;
    return values.map((value) => {
      if (value === null) return null;
      mean = weight * mean + (1 - weight) * value;
      mass = weight * mass + (1 - weight);
      return mean / mass;
    });
  };

  // What lies within three quartile ranges of the middle half (Tukey's outer fences); null where
  // there is no spread to judge by.
  const fences = (values) => {
    const sorted = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
    if (sorted.length < 8) return null;
    const quarter = sorted[Math.floor((sorted.length - 1) / 4)];
    const three = sorted[Math.ceil((3 * (sorted.length - 1)) / 4)];
    const room = 3 * (three - quarter);
    return room > 0 ? [quarter - room, three + room] : null;
  };

  // `where` puts the place of a point into words.
  const words = (name, series, where) => {
    let n = 0,
      first = -1,
      last = -1,
      least = Infinity,
      greatest = -Infinity;
    series.values.forEach((value, i) => {
      if (value === null) return;
      if (first < 0) first = i;
      last = i;
      n += 1;
      least = Math.min(least, value);
      greatest = Math.max(greatest, value);
    });
    if (!n) return `${name}: no numbers yet.`;
    const broken = series.broken.length
      ? ` ${series.broken.length} values are no number, first ${where(series.broken[0])}.`
      : "";
    return `${name}: ${n} points, from ${number(series.values[first])} ${where(series.steps[first])} to ${number(series.values[last])} ${where(series.steps[last])}; least ${number(least)}, greatest ${number(greatest)}.${broken}`;
  };

  // light-dark() is resolved by asking an element, not by reading the token
  const NAMES = [
    "text-2",
    "text-3",
    "line",
    "line-strong",
    "bad",
    "bad-soft",
    "warn",
    "warn-soft",
    "accent",
    "surface",
  ];
  const SERIES = [1, 2, 3, 4, 5, 6].map((n) => `series-${n}`);
  const inks = (root) => {
    const probe = document.createElement("span");
    root.append(probe);
    const found = {};
    for (const name of [...NAMES, ...SERIES]) {
      probe.style.color = `var(--${name})`;
      found[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    return found;
  };
  const faded = (ink, alpha) =>
    ink.replace(/rgba?\(([^)]+)\)/, (_, body) => `rgba(${body.split(",").slice(0, 3).join(",")}, ${alpha})`);

  // Colour alone tells nobody apart who cannot see it: each run has its dashes too.
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [1, 2]];

  Object.assign(concord, { figures: { number, count, tick, smoothed, fences, words, inks, faded, DASHES } });
})();
