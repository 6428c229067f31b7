// One chart: the curves of a metric, or of metrics that are read together, for one run or several,
// with what stands on it: current limits, alerts with the stretch from their onset, new attempts.
(() => {
  const concord = (window.concord ??= {});
  const { number, tick, smoothed, fences, words, faded, DASHES } = concord.figures;
  const { clockOf, WORDS } = concord.axes;
  const HEIGHT = 170;
  const FEW = 40; // points that are drawn as dots too

  const plain = (value) => String(Number(value.toPrecision(12)));
  // What a run has to have to be drawn over an axis.
  const MISSING = { time: "clock", epochs: "count of passes", tokens: "count of tokens" };
  // The points of a curve that have a place on the axis: one stretch, for steps ascend.
  const placed = ({ steps, values }, { first, last }) => {
    const from = steps.findIndex((step) => step >= first);
    const after = steps.findIndex((step) => step > last);
    const [start, end] = [from < 0 ? steps.length : from, after < 0 ? steps.length : after];
    return { steps: steps.slice(start, end), values: values.slice(start, end) };
  };
  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  };

  class Plot {
    // Comes into view, or leaves it.
    seen(inView) {
      this.inView = inView;
      if (!inView) return;
      this.update(false);
      if (this.behind) this.zoomed();
    }

    // Shows the stretch that the page has zoomed to, where it is of this chart's axis.
    zoomed() {
      this.behind = !this.inView;
      if (this.behind || !this.plot) return;
      const xs = this.plot.data[0];
      this.plot.setScale("x", this.zoom ?? { min: xs[0], max: xs[xs.length - 1] });
    }

    get zoom() {
      return this.page.zoom?.axis === this.axis ? this.page.zoom : null;
    }

    // What it is drawn over: a machine is, whatever the page says, drawn over time.
    get axis() {
      return this.chart.by_time ? "time" : this.page.axis;
    }

    along(source) {
      const { chart, page } = this;
      return chart.by_time
        ? clockOf(source, source.series.get(chart.names[0])?.steps[0])
        : page.along(source);
    }

    get tick() {
      return this.axis === "tokens" ? tick : plain;
    }

    place(source, step) {
      return this.along(source).at(step);
    }

    // `page` has sources, inks, weight, axis, log, clip, zoom, pins, along(source), band(name),
    // onZoom(axis, min, max), onWhole(), onPin(key).
    constructor(chart, page) {
      this.chart = chart;
      this.page = page;
      this.plot = null;
      this.shape = "";
      this.inView = false; // the page tells; what is not seen is drawn once it is
      this.behind = false; // the zoom has moved on since it was last seen
      this.figure = element("figure", "curve");
      this.caption = element("figcaption");
      const titles = element("span", "titles");
      titles.append(element("strong", "", chart.title === chart.names[0] ? "" : chart.title));
      if (chart.names.length === 1) titles.append(" ", element("code", "", chart.names[0]));
      if (chart.unit) titles.append(" ", element("span", "unit", chart.unit));
      this.reading = element("span", "reading");
      const button = (text, label, act) => {
        const made = element("button", "button quiet small", text);
        made.type = "button";
        made.setAttribute("aria-label", label);
        made.addEventListener("click", act);
        return made;
      };
      this.pin = button("Pin", `Keep the chart of ${chart.title} on top`, () => page.onPin(chart.key));
      const tools = element("span", "chart-buttons");
      tools.append(
        this.pin,
        button("PNG", `Download the chart of ${chart.title} as PNG`, () => this.save("png")),
        button("SVG", `Download the chart of ${chart.title} as SVG`, () => this.save("svg")),
      );
      this.caption.append(titles, this.reading, tools);
      this.host = element("div", "plot");
      this.host.setAttribute("aria-hidden", "true");
      this.marks = element("div", "marks");
      const stage = element("div", "stage");
      stage.append(this.host, this.marks);
      this.note = element("div", "mark-note");
      this.note.hidden = true;
      this.foot = element("span", "chart-foot");
      this.legend = element("ul", "legend");
      this.legend.setAttribute("role", "list");
      this.summary = element("p", "visually-hidden");
      this.figure.append(this.caption, stage, this.note, this.legend, this.foot, this.summary);
      this.figure.addEventListener("keydown", (event) => event.key === "Escape" && this.hush());
      this.figure.addEventListener("mouseleave", () => this.hush());
    }

    // --- what is drawn: a line per run, or per metric of the chart ---

    lines() {
      const { chart, page } = this;
      const lines = [];
      if (chart.names.length > 1) {
        const source = page.sources[0];
        const own = this.along(source).known ? chart.names.filter((name) => source.series.has(name)) : [];
        const plain = own.filter((name) => !name.endsWith("/reference"));
        for (const name of own) {
          const partner = name.replace(/\/reference$/, "");
          const place = Math.max(0, plain.indexOf(partner));
          lines.push({
            source,
            name,
            label: chart.labels[chart.names.indexOf(name)],
            series: source.at(name),
            ink: page.inks[`series-${(place % 6) + 1}`],
            number: (place % 6) + 1,
            dash: partner === name ? DASHES[Math.floor(place / 6) % DASHES.length] : [2, 3],
            level: partner !== name,
            main: true,
          });
        }
        return lines;
      }
      for (const source of page.sources) {
        const series = source.visible ? source.at(chart.names[0]) : undefined;
        if (!series || !this.along(source).known) continue;
        const main = source.role !== "reference";
        const ink = page.inks[`series-${source.colour}`];
        const dash = page.sources.length > 1 ? DASHES[(source.colour - 1) % DASHES.length] : [];
        lines.push({
          source,
          name: chart.names[0],
          label: source.name,
          series,
          ink,
          dash,
          number: source.colour,
          main,
          level: false,
        });
      }
      return lines;
    }

    data(lines, band) {
      const weight = this.page.weight;
      const drawn = (values) => (this.page.log ? values.map((v) => (v > 0 ? v : null)) : values);
      const tables = lines.map(({ source, series, level }) => {
        const along = this.along(source);
        if (level) {
          // measured once, before the first step: drawn across as what the others began from
          const value = series.values.at(-1);
          return [this.page.whole(this.axis), drawn([value, value]), [null, null]];
        }
        const { steps, values } = placed(series, along);
        return [
          steps.map((step) => along.at(step)),
          drawn(values),
          drawn(weight ? smoothed(values, weight) : values.map(() => null)),
        ];
      });
      if (band) tables.push([band.steps, drawn(band.high), drawn(band.low)]);
      return tables.length > 1 ? uPlot.join(tables) : (tables[0] ?? [[], [], []]);
    }

    update(force) {
      const lines = this.lines();
      if (!this.inView) {
        this.stale ||= force;
        this.now = lines;
        this.tell();
        return;
      }
      force ||= this.stale;
      this.stale = false;
      // a band lies over steps: the runs behind it have no clock in common
      const band =
        this.chart.names.length === 1 && this.axis === "step" ? this.page.band(this.chart.names[0]) : null;
      this.now = lines;
      const shape = JSON.stringify([
        lines.map(({ source, name }) => [source.id, name]),
        Boolean(band),
        this.page.weight,
        this.axis,
        this.page.log,
        this.page.clip,
        lines.map(({ series }) => series.steps.length <= FEW),
      ]);
      const stamp = [...lines.map(({ series }) => series), band];
      const same = this.stamp?.length === stamp.length && stamp.every((one, i) => one === this.stamp[i]);
      if (this.plot && same && !force && shape === this.shape) return;
      this.stamp = stamp;
      if (!this.plot || force || shape !== this.shape) this.build(lines, band);
      else {
        this.quiet = true;
        this.plot.setData(this.data(lines, band), !this.zoom);
        this.quiet = false;
        if (this.zoom) this.plot.redraw();
      }
      this.shape = shape;
      this.tell();
    }

    build(lines, band) {
      const { inks, weight, log } = this.page;
      const zoom = this.zoom;
      const axis = {
        stroke: inks["text-2"],
        grid: { stroke: inks.line, width: 1 },
        ticks: { stroke: inks.line, width: 1 },
        font: "11px sans-serif",
      };
      const series = [{}];
      for (const { ink, dash, main, series: own, level } of lines) {
        const faint = faded(ink, 0.28),
          soft = faded(ink, 0.6);
        const raw = weight && !level ? faint : main ? ink : soft;
        series.push({
          stroke: raw,
          width: main ? 1.5 : 1,
          dash,
          points: { show: main && !level && own.steps.length <= FEW, size: 5, fill: ink },
        });
        series.push({ stroke: main ? ink : soft, width: main ? 2 : 1.25, dash, points: { show: false } });
      }
      const bands = [];
      if (band) {
        const edge = { stroke: faded(inks["line-strong"], 0.5), width: 1, points: { show: false } };
        series.push(edge, edge);
        bands.push({
          series: [series.length - 2, series.length - 1],
          fill: faded(inks["line-strong"], 0.18),
        });
      }
      this.plot?.destroy();
      this.host.replaceChildren();
      this.plot = new uPlot(
        {
          width: Math.max(200, this.host.clientWidth),
          height: HEIGHT,
          legend: { show: false },
          cursor: {
            sync: { key: `run-${this.axis}`, setSeries: false },
            drag: { x: true, y: false },
            points: { size: 6 },
          },
          scales: {
            x: { time: false },
            y: { distr: log ? 3 : 1, range: (u, least, most) => this.range(u, least, most) },
          },
          axes: [
            { ...axis, size: 28, space: 60, values: (_, ticks) => ticks.map(this.tick) },
            {
              ...axis,
              size: 56,
              values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))),
            },
          ],
          series,
          bands,
          hooks: {
            draw: [(u) => this.mark(u)],
            setCursor: [(u) => this.read(u.cursor.idx)],
            setSelect: [
              (u) => {
                if (u.select.width < 4) return;
                this.page.onZoom(
                  this.axis,
                  u.posToVal(u.select.left, "x"),
                  u.posToVal(u.select.left + u.select.width, "x"),
                );
              },
            ],
            setScale: [
              (u, key) => {
                // a double click shows the whole run again, in every chart
                if (key !== "x" || this.quiet || this.page.spreading || !this.zoom) return;
                const { min, max } = u.scales.x;
                if (Math.abs(min - this.zoom.min) > 1e-9 || Math.abs(max - this.zoom.max) > 1e-9)
                  this.page.onWhole();
              },
            ],
          },
        },
        this.data(lines, band),
        this.host,
      );
      this.plot.over.addEventListener("mousedown", (event) => event.shiftKey && this.pan(event), true);
      if (zoom) this.plot.setScale("x", zoom);
    }

    // A limit that lies near the curve is in the picture; a far one must not flatten the curve.
    range(u, least, most) {
      const { clip, log } = this.page;
      if (least === null || most === null) return log ? [1, 10] : [0, 1];
      const fence = clip ? fences(this.seenValues(u)) : null;
      if (fence) [least, most] = [Math.max(least, fence[0]), Math.min(most, fence[1])];
      if (log) {
        // a fence may lie below 0, the least value that is drawn does not
        const [low, high] = uPlot.rangeLog(least, most, 10, false);
        return low < high ? [low, high] : [low / 10, low * 10];
      }
      const span = most - least || Math.abs(most) || 1;
      for (const { value } of this.limits()) {
        if (value > most && value - most < span) most = value;
        if (value < least && least - value < span) least = value;
      }
      return uPlot.rangeNum(least, most, 0.1, true);
    }

    seenValues(u) {
      const [xs] = u.data;
      // the page's zoom: uPlot asks for this range before it has set that one
      const { min, max } = this.zoom ?? { min: -Infinity, max: Infinity };
      const seen = (_, i) => xs[i] >= min && xs[i] <= max;
      return this.now.flatMap(({ level }, i) => (level ? [] : (u.data[1 + 2 * i] ?? []).filter(seen)));
    }

    // What the picture leaves out, in words.
    hidden() {
      const { clip, log, sources } = this.page;
      const said = [];
      const what = MISSING[this.axis];
      for (const source of sources) {
        const series = source.visible && what ? source.at(this.chart.names[0]) : undefined;
        if (!series) continue;
        const along = this.along(source);
        if (!along.known && source.lacks([source.axes[this.axis]])) continue; // it is on its way
        const left = series.steps.length - placed(series, along).steps.length;
        if (along.beginsAgain) said.push(`The ${what} of ${source.name} begins again: not drawn.`);
        else if (!along.known) said.push(`${source.name} has no ${what}: not drawn.`);
        else if (left)
          said.push(`${left} point${left === 1 ? "" : "s"} of ${source.name} without a ${what}: not drawn.`);
      }
      const values = this.now.flatMap(({ series }) => series.values).filter((value) => value !== null);
      const low = log ? values.filter((value) => value <= 0).length : 0;
      if (low) said.push(`${low} value${low === 1 ? "" : "s"} of 0 or less: not on a log scale.`);
      const seen = clip && this.plot ? this.seenValues(this.plot) : [];
      const fence = fences(seen);
      const out = fence ? seen.filter((v) => v !== null && (v < fence[0] || v > fence[1])).length : 0;
      if (out) said.push(`${out} outlier${out === 1 ? "" : "s"} clipped.`);
      return said;
    }

    limits() {
      const source = this.page.sources[0];
      return source.role === "compared"
        ? []
        : source.limits.filter(({ metric }) => this.chart.names.includes(metric));
    }

    alerts() {
      return this.page.sources
        .filter((source) => source.visible && source.role !== "reference")
        .flatMap((source) =>
          source.alerts
            .filter(({ metric, severity }) => this.chart.names.includes(metric) && severity !== "info")
            .map((alert) => ({ ...alert, source })),
        );
    }

    pan(event) {
      event.stopImmediatePropagation();
      const { scales, bbox } = this.plot;
      const { min, max } = scales.x;
      const perPixel = (max - min) / (bbox.width / devicePixelRatio);
      const move = (now) =>
        this.page.onZoom(
          this.axis,
          min - (now.clientX - event.clientX) * perPixel,
          max - (now.clientX - event.clientX) * perPixel,
        );
      const done = () => {
        removeEventListener("mousemove", move);
        removeEventListener("mouseup", done);
      };
      addEventListener("mousemove", move);
      addEventListener("mouseup", done);
    }

    // --- on the canvas, so that the PNG has it; the buttons over it are for pointer and keyboard ---

    mark(u) {
      const { ctx, bbox } = u;
      const { inks } = this.page;
      const pixel = devicePixelRatio;
      const inside = (x) => x >= bbox.left && x <= bbox.left + bbox.width;
      const across = (y, ink, dash) => {
        if (y < bbox.top || y > bbox.top + bbox.height) return;
        ctx.strokeStyle = ink;
        ctx.setLineDash(dash.map((d) => d * pixel));
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
        ctx.setLineDash([]);
      };
      ctx.save();
      ctx.lineWidth = pixel;
      const own = this.page.sources[0];
      const at = (source, step) =>
        this.along(source).known ? u.valToPos(this.place(source, step), "x", true) : Number.NaN;
      const upright = (step, ink, text) => {
        const x = at(own, step);
        if (this.chart.by_time || !inside(x)) return;
        ctx.strokeStyle = ink;
        ctx.setLineDash([3 * pixel, 3 * pixel]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.setLineDash([]);
        ctx.fillStyle = inks["text-2"];
        ctx.font = `${10 * pixel}px sans-serif`;
        ctx.fillText(text, x + 3 * pixel, bbox.top + 10 * pixel);
      };
      for (const { step, number: n } of own.role === "self" ? own.attempts : [])
        upright(step, inks["line-strong"], `attempt ${n}`);
      if (this.page.step !== null) upright(this.page.step, inks.accent, `step ${this.page.step}`);
      for (const { value, stops } of this.limits())
        across(u.valToPos(value, "y", true), stops ? inks.bad : inks.warn, [6, 4]);
      const alerts = this.alerts();
      for (const { onset, step, severity, threshold, source } of alerts) {
        const ink = severity === "critical" ? inks.bad : inks.warn;
        if (typeof threshold === "number") across(u.valToPos(threshold, "y", true), ink, [6, 4]);
        const from = Math.max(bbox.left, at(source, onset));
        const to = Math.min(bbox.left + bbox.width, at(source, step));
        if (to > from) {
          ctx.fillStyle = faded(ink, 0.14);
          ctx.fillRect(from, bbox.top, to - from, bbox.height);
        }
        const x = at(source, step);
        if (!inside(x)) continue;
        const base = bbox.top + bbox.height;
        ctx.fillStyle = ink;
        ctx.beginPath();
        ctx.moveTo(x, base - 10 * pixel);
        ctx.lineTo(x - 6 * pixel, base);
        ctx.lineTo(x + 6 * pixel, base);
        ctx.fill();
      }
      ctx.fillStyle = inks.bad;
      for (const { series, source } of this.now ?? [])
        for (const step of series.broken) {
          const x = at(source, step);
          if (inside(x)) ctx.fillRect(x - pixel, bbox.top, 2 * pixel, 6 * pixel);
        }
      ctx.restore();
      this.buttons(u, alerts);
    }

    buttons(u, alerts) {
      const pixel = devicePixelRatio;
      const key = JSON.stringify(alerts.map(({ step, rule, source }) => [source.id, step, rule]));
      if (key !== this.marked) {
        this.marked = key;
        this.marks.replaceChildren(...alerts.map((alert) => this.button(alert)));
      }
      alerts.forEach(({ step, source }, i) => {
        const x = u.valToPos(this.place(source, step), "x", true);
        const button = this.marks.children[i];
        button.hidden = !(x >= u.bbox.left && x <= u.bbox.left + u.bbox.width);
        button.style.left = `${x / pixel}px`;
        button.style.top = `${(u.bbox.top + u.bbox.height) / pixel}px`;
      });
    }

    button(alert) {
      const button = element("button", "mark");
      button.type = "button";
      button.setAttribute(
        "aria-label",
        `${this.who(alert)}Step ${alert.step}, ${alert.severity}: ${alert.text}`,
      );
      for (const name of ["mouseenter", "focus", "click"])
        button.addEventListener(name, () => this.show(alert));
      return button;
    }

    who({ source }) {
      return this.page.sources.filter(({ role }) => role === "compared").length > 1 ? `${source.name}. ` : "";
    }

    show(alert) {
      const began = alert.onset < alert.step ? `, began about step ${alert.onset}` : "";
      const head = element(
        "strong",
        alert.severity === "critical" ? "is-bad" : "is-warn",
        `${this.who(alert)}Step ${alert.step}${began}`,
      );
      const links = element("span", "row");
      for (const [label, url] of alert.links) {
        const link = element("a", "", label);
        link.href = url;
        links.append(link);
      }
      this.note.replaceChildren(head, element("span", "", alert.text), links);
      this.note.hidden = false;
    }

    hush() {
      this.note.hidden = true;
    }

    // --- in words ---

    tell() {
      const where = (at) =>
        this.chart.by_time ? WORDS.time(this.place(this.page.sources[0], at)) : `at step ${at}`;
      this.pin.setAttribute("aria-pressed", String(this.page.pins.has(this.chart.key)));
      const single = this.now.length === 1 && this.now[0].source.role === "self";
      this.summary.textContent = this.now
        .map(({ label, name, series }) => words(single ? name : label, series, where))
        .join(" ");
      const many = this.chart.names.length > 1;
      this.legend.hidden = !many;
      if (many) {
        this.legend.replaceChildren(
          ...this.now.map(({ label, number: n, level }) => {
            const item = element("li");
            item.append(concord.swatch(n, level), ` ${label}`);
            return item;
          }),
        );
      }
      const limits = this.limits().map(
        ({ value, bound, stops }) =>
          `${stops ? "stops" : "alarms"} ${bound === "above" ? "over" : "under"} ${number(value)}`,
      );
      this.foot.textContent = [
        this.chart.about,
        limits.length ? `Guardrail ${limits.join(", ")}.` : "",
        ...this.hidden(),
      ]
        .filter(Boolean)
        .join(" ");
      this.read(this.plot?.cursor.idx);
    }

    read(idx) {
      if (!this.inView && this.reading.childNodes.length && idx !== undefined) return;
      const at = this.plot?.data[0]?.[idx];
      const lines = this.now.filter(({ level }) => !level).slice(0, 5);
      const drawn = lines.map(({ source, series }) => placed(series, this.along(source)));
      const parts = lines.map((line, i) => {
        const value = at === undefined ? drawn[i].values.at(-1) : this.near(line, at);
        return element("span", `ink-${line.number}`, number(value));
      });
      const ends = drawn.flatMap(({ steps }, i) =>
        steps.length ? [this.place(lines[i].source, steps.at(-1))] : [],
      );
      const where = [...new Set(at === undefined ? ends : [at])].map((x) => WORDS[this.axis](x));
      this.reading.replaceChildren(...parts, where.length > 1 ? "at their ends" : (where[0] ?? ""));
    }

    near({ source, series: { steps, values } }, place) {
      const along = this.along(source);
      const at = Math.min(along.step(place), along.last) + 1e-6; // there and back again rounds
      let low = 0,
        high = steps.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (steps[middle] <= at) low = middle;
        else high = middle - 1;
      }
      return steps[low] <= at ? values[low] : null;
    }

    save(kind) {
      const name = `${this.page.sources[0].id}-${this.chart.key.replaceAll("/", "-")}.${kind}`;
      const give = (blob) => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = name;
        link.click();
        URL.revokeObjectURL(link.href);
      };
      if (kind === "svg") give(new Blob([concord.svgOf(this)], { type: "image/svg+xml" }));
      else this.plot.root.querySelector("canvas").toBlob(give);
    }

    resize() {
      if (this.plot && this.host.isConnected && this.host.clientWidth)
        this.plot.setSize({ width: Math.max(200, this.host.clientWidth), height: HEIGHT });
    }
  }

  concord.swatch = (n, dashed) => {
    const holder = document.createElement("template");
    holder.innerHTML =
      '<svg viewBox="0 0 20 8" class="line-swatch" aria-hidden="true"><line x1="0" x2="20" y1="4" y2="4"/></svg>';
    const svg = holder.content.firstChild;
    svg.firstChild.setAttribute("class", `ink-line-${n}`);
    if (dashed) svg.firstChild.setAttribute("stroke-dasharray", "2 3");
    return svg;
  };
  concord.Plot = Plot;
})();
