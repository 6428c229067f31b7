// A run as the charts read it: asks the server for the metrics that are shown and keeps what came.
// The server answers 304 while nothing is new.
(() => {
  const concord = (window.concord ??= {});
  const MOST_POINTS = 3000;

  class Source {
    constructor({ id, name, page, url, live, role, colour }) {
      Object.assign(this, { id, name, page, url, live, role, colour });
      this.series = new Map(); // metric → {steps, values, broken}, of the whole run
      this.fine = {}; // step, time → {from, to, series}: the same, closer, where one has zoomed in
      this.axes = {}; // time, epochs, tokens → the metric that says where a step lay
      this.began = null; // Unix seconds
      this.charts = [];
      this.limits = [];
      this.alerts = [];
      this.attempts = [];
      this.visible = true;
      this.etag = "";
      this.asked = "";
      this.known = false;
    }

    // `names` null asks for the charts that are open at first. True when something new came.
    async load(names) {
      const query = new URLSearchParams();
      if (names === null) query.set("shown", "leading");
      else for (const name of names) query.append("names", name);
      const address = `${this.url}?${query}`;
      const fresh = address !== this.asked;
      const answer = await fetch(address, {
        cache: "no-store",
        headers: this.etag && !fresh ? { "If-None-Match": this.etag } : {},
      });
      if (answer.redirected || answer.status === 401 || answer.status === 403) throw new Error("signed-out");
      if (answer.status === 304) return false;
      if (!answer.ok) throw new Error("unreachable");
      const told = await answer.json();
      this.etag = answer.headers.get("ETag") ?? "";
      this.asked = address;
      this.known = true;
      const { charts, limits, alerts, attempts, live, axes, began } = told;
      Object.assign(this, { charts, limits, alerts, attempts, live, axes, began });
      for (const [name, series] of Object.entries(told.series)) this.series.set(name, series);
      return true;
    }

    // New points of the metrics that are kept. False where the whole must be fetched instead: a metric
    // is new, or so many points have come that the curves must be thinned again.
    add(news) {
      for (const [name, { steps, values, broken }] of Object.entries(news)) {
        if (!this.has(name)) return false;
        const known = this.series.get(name);
        if (!known) continue;
        const end = known.steps.at(-1) ?? -1;
        const first = steps.findIndex((step) => step > end);
        if (first < 0) continue;
        if (known.steps.length > MOST_POINTS) return false;
        this.series.set(name, {
          steps: known.steps.concat(steps.slice(first)),
          values: known.values.concat(values.slice(first)),
          broken: known.broken.concat(broken.filter((step) => step > end)),
        });
      }
      this.etag = "";
      return true;
    }

    lacks(names) {
      return names.some((name) => !this.series.has(name) && this.has(name));
    }

    has(name) {
      return this.charts.some((chart) => chart.names.includes(name));
    }

    byTime(name) {
      return this.charts.some((chart) => chart.by_time && chart.names.includes(name));
    }

    // Finer points of a stretch of steps, or of Unix seconds; what lies outside stays as coarse as
    // it was.
    async closer(names, from, to, unit) {
      if (!names.length) return;
      const query = new URLSearchParams({
        from: String(Math.max(0, Math.floor(from))),
        to: String(Math.max(0, Math.ceil(to))),
      });
      for (const name of names) query.append("names", name);
      const answer = await fetch(`${this.url}?${query}`, { cache: "no-store" });
      if (!answer.ok || answer.redirected) return;
      this.fine[unit] = { from, to, series: (await answer.json()).series };
    }

    at(name) {
      const whole = this.series.get(name);
      const closer = this.fine[this.byTime(name) ? "time" : "step"];
      const fine = closer?.series[name];
      if (!whole || !fine?.steps.length) return whole;
      const { from, to } = closer;
      const before = whole.steps.findIndex((step) => step >= from);
      const after = whole.steps.findIndex((step) => step > to);
      const joined = (key) => [
        ...(before < 0 ? whole[key] : whole[key].slice(0, before)),
        ...fine[key],
        ...(after < 0 ? [] : whole[key].slice(after)),
      ];
      return { steps: joined("steps"), values: joined("values"), broken: whole.broken };
    }
  }

  concord.Source = Source;
})();
