// The curves of a run: one small chart for each metric, drawn by uPlot from the JSON endpoint.
// Shared cursor, shared zoom (kept when new points arrive), raw line kept faint under smoothing,
// thresholds, alerts and new attempts marked. While the run lives it asks for news; the server
// answers 304 when there are none.
(() => {
  "use strict";
  const root = document.getElementById("charts");
  if (!root || !window.uPlot) return;
  const grid = document.getElementById("chart-grid");
  const filter = document.getElementById("chart-filter");
  const smooth = document.getElementById("chart-smooth");
  const status = document.getElementById("chart-status");
  const POLL_MS = 2000;
  const HEIGHT = 170;
  const charts = new Map(); // metric name → {figure, plot, host, reading, summary, series}
  let zoom = null; // {min, max} of the steps shown, or null for the whole run
  let etag = "";
  let latest = null;

  const colour = (name) => {
    // light-dark() is resolved by asking an element, not by reading the token
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    root.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  let inks = {};
  const readInks = () => {
    inks = Object.fromEntries(
      ["a", "b", "text-2", "line", "line-strong", "bad", "warn", "accent"].map((n) => [n, colour(`--${n}`)]),
    );
    inks.faint = inks.a.replace(/rgba?\(([^)]+)\)/, (_, body) => `rgba(${body.split(",").slice(0, 3).join(",")}, 0.28)`);
  };

  const number = (value) => {
    if (value === null || value === undefined) return "—";
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  };
  const group = (name) => (name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "training");

  // Exponential moving average without the bias towards the first value.
  const smoothed = (values, weight) => {
    let mean = 0, mass = 0;
    return values.map((value) => {
      if (value === null) return null;
      mean = weight * mean + (1 - weight) * value;
      mass = weight * mass + (1 - weight);
      return mean / mass;
    });
  };
  const columns = (series) => {
    const weight = Number(smooth.value);
    return [series.steps, series.values, weight ? smoothed(series.values, weight) : series.values.map(() => null)];
  };

  const words = (name, series) => {
    const known = series.values.map((v, i) => [series.steps[i], v]).filter(([, v]) => v !== null);
    if (!known.length) return `${name}: no numbers yet.`;
    const values = known.map(([, v]) => v);
    const [first, last] = [known[0], known[known.length - 1]];
    const broken = series.broken.length ? ` ${series.broken.length} values are no number, first at step ${series.broken[0]}.` : "";
    return `${name}: ${known.length} points, from ${number(first[1])} at step ${first[0]} to ${number(last[1])} at step ${last[0]}; least ${number(Math.min(...values))}, greatest ${number(Math.max(...values))}.${broken}`;
  };

  const mark = (u, name) => {
    const { ctx, bbox } = u;
    const inside = (x) => x >= bbox.left && x <= bbox.left + bbox.width;
    const pixel = devicePixelRatio;
    ctx.save();
    ctx.lineWidth = pixel;
    for (const attempt of latest.attempts) {
      const x = u.valToPos(attempt.step, "x", true);
      if (!inside(x)) continue;
      ctx.strokeStyle = inks["line-strong"];
      ctx.setLineDash([3 * pixel, 3 * pixel]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.fillStyle = inks["text-2"];
      ctx.font = `${10 * pixel}px sans-serif`;
      ctx.fillText(`attempt ${attempt.number}`, x + 3 * pixel, bbox.top + 10 * pixel);
    }
    ctx.setLineDash([]);
    for (const alert of latest.alerts) {
      const mine = alert.rule === name || alert.rule.startsWith(`${name}:`);
      const ink = alert.severity === "critical" ? inks.bad : inks.warn;
      if (mine && typeof alert.threshold === "number") {
        const y = u.valToPos(alert.threshold, "y", true);
        if (y >= bbox.top && y <= bbox.top + bbox.height) {
          ctx.strokeStyle = ink;
          ctx.setLineDash([6 * pixel, 4 * pixel]);
          ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
          ctx.setLineDash([]);
        }
      }
      const x = u.valToPos(alert.step, "x", true);
      if (!inside(x) || alert.severity === "info") continue;
      const base = bbox.top + bbox.height;
      ctx.fillStyle = ink;
      ctx.beginPath(); ctx.moveTo(x, base - 8 * pixel); ctx.lineTo(x - 5 * pixel, base); ctx.lineTo(x + 5 * pixel, base); ctx.fill();
    }
    const broken = charts.get(name)?.series.broken ?? [];
    ctx.fillStyle = inks.bad;
    for (const step of broken) {
      const x = u.valToPos(step, "x", true);
      if (inside(x)) ctx.fillRect(x - pixel, bbox.top, 2 * pixel, 6 * pixel);
    }
    ctx.restore();
  };

  let spreading = false; // one chart's zoom is being given to the others
  const setZoom = (min, max) => {
    spreading = true;
    for (const { plot, series } of charts.values()) {
      const whole = [series.steps[0], series.steps[series.steps.length - 1]];
      plot.setScale("x", zoom ? { min, max } : { min: whole[0], max: whole[1] });
    }
    spreading = false;
  };

  const make = (name) => {
    const figure = document.createElement("figure");
    figure.className = "curve";
    const caption = document.createElement("figcaption");
    const title = document.createElement("code");
    title.textContent = name;
    const reading = document.createElement("span");
    reading.className = "reading";
    const save = document.createElement("button");
    save.type = "button";
    save.className = "button quiet small";
    save.textContent = "PNG";
    save.setAttribute("aria-label", `Download the chart of ${name} as PNG`);
    caption.append(title, reading, save);
    const host = document.createElement("div");
    host.setAttribute("aria-hidden", "true");
    const summary = document.createElement("p");
    summary.className = "visually-hidden";
    figure.append(caption, host, summary);
    const chart = { figure, host, reading, summary, plot: null, series: null };
    save.addEventListener("click", () =>
      chart.plot.root.querySelector("canvas").toBlob((blob) => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = `${latest.run}-${name.replaceAll("/", "-")}.png`;
        link.click();
        URL.revokeObjectURL(link.href);
      }),
    );
    return chart;
  };

  const draw = (name, chart) => {
    const axis = { stroke: inks["text-2"], grid: { stroke: inks.line, width: 1 }, ticks: { stroke: inks.line, width: 1 }, font: "11px sans-serif" };
    chart.plot?.destroy();
    chart.plot = new uPlot(
      {
        width: Math.max(200, chart.host.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { sync: { key: "run", setSeries: false }, drag: { x: true, y: false }, points: { size: 6 } },
        scales: { x: { time: false } },
        axes: [{ ...axis, size: 28, space: 60 }, { ...axis, size: 56, values: (u, ticks) => ticks.map(number) }],
        series: [
          {},
          { stroke: Number(smooth.value) ? inks.faint : inks.a, width: 1.5, points: { show: chart.series.steps.length <= 40, size: 5, fill: inks.a } },
          { stroke: inks.a, width: 2, points: { show: false } },
        ],
        hooks: {
          draw: [(u) => mark(u, name)],
          setCursor: [(u) => {
            const i = u.cursor.idx;
            const at = i === null || i === undefined ? chart.series.steps.length - 1 : i;
            chart.reading.textContent = chart.series.steps.length ? `${number(chart.series.values[at])} at ${chart.series.steps[at]}` : "";
          }],
          setSelect: [(u) => {
            if (u.select.width < 4) return;
            zoom = { min: u.posToVal(u.select.left, "x"), max: u.posToVal(u.select.left + u.select.width, "x") };
            setTimeout(() => setZoom(zoom.min, zoom.max));
          }],
          setScale: [(u, key) => {
            // a double click shows the whole run again, in every chart
            if (key !== "x" || spreading || !zoom) return;
            const { min, max } = u.scales.x;
            if (Math.abs(min - zoom.min) > 1e-9 || Math.abs(max - zoom.max) > 1e-9) { zoom = null; setTimeout(() => setZoom()); }
          }],
        },
      },
      columns(chart.series),
      chart.host,
    );
    if (zoom) chart.plot.setScale("x", zoom);
  };

  const matches = (name) => {
    const wanted = filter.value.trim().toLowerCase();
    return !wanted || wanted.split(/\s+/).some((word) => name.toLowerCase().includes(word));
  };

  const arrange = () => {
    const names = Object.keys(latest.series).filter(matches).sort((x, y) => group(x).localeCompare(group(y)) || x.localeCompare(y));
    const nodes = [];
    let heading = null;
    for (const name of names) {
      if (group(name) !== heading) {
        heading = group(name);
        const title = document.createElement("h2");
        title.textContent = heading;
        nodes.push(title);
      }
      nodes.push(charts.get(name).figure);
    }
    const now = [...grid.children];
    const same = now.length === nodes.length && nodes.every((n, i) => n === now[i] || (n.tagName === "H2" && now[i].tagName === "H2" && n.textContent === now[i].textContent));
    if (!same) grid.replaceChildren(...nodes);
    return names;
  };

  const refresh = (redraw) => {
    for (const [name, series] of Object.entries(latest.series)) {
      if (!charts.has(name)) charts.set(name, make(name));
      const chart = charts.get(name);
      chart.fresh = chart.series?.steps.length !== series.steps.length || redraw;
      chart.series = series;
      chart.summary.textContent = words(name, series);
    }
    for (const name of arrange()) {
      const chart = charts.get(name);
      if (!chart.plot || redraw) draw(name, chart);
      else if (chart.fresh) {
        spreading = true;
        chart.plot.setData(columns(chart.series), !zoom);
        spreading = false;
        if (zoom) chart.plot.redraw();
      }
      if (chart.plot.cursor.idx === null || chart.plot.cursor.idx === undefined) {
        const last = chart.series.steps.length - 1;
        chart.reading.textContent = last >= 0 ? `${number(chart.series.values[last])} at ${chart.series.steps[last]}` : "";
      }
    }
    const count = Object.keys(latest.series).length;
    status.textContent = count ? `${count} metric${count === 1 ? "" : "s"}${latest.live ? " · live" : ""}` : latest.live ? "waiting for the first points" : "no metrics";
  };

  const load = async () => {
    const began = performance.now();
    let live = root.dataset.live === "1";
    try {
      const answer = await fetch(root.dataset.url, { cache: "no-store", headers: etag ? { "If-None-Match": etag } : {} });
      if (answer.redirected || answer.status === 401 || answer.status === 403) {
        live = false;
        status.textContent = "you were signed out; reload the page";
      } else if (answer.status === 200) {
        etag = answer.headers.get("ETag") ?? "";
        latest = await answer.json();
        live = latest.live;
        refresh(false);
      } else if (answer.status === 304) live = latest.live;
    } catch {
      status.textContent = "the server cannot be reached; trying again";
    }
    // A slow answer (a very long run) is asked for less often.
    if (live) setTimeout(load, Math.max(POLL_MS, 4 * (performance.now() - began)));
  };

  filter.addEventListener("input", () => latest && refresh(false));
  smooth.addEventListener("change", () => latest && refresh(true));
  document.getElementById("chart-reset").addEventListener("click", () => { zoom = null; setZoom(); });
  document.addEventListener("themechange", () => { readInks(); if (latest) refresh(true); });
  let width = 0;
  new ResizeObserver(() => {
    if (grid.clientWidth === width) return;
    width = grid.clientWidth;
    for (const { plot, host } of charts.values()) if (plot && host.isConnected) plot.setSize({ width: Math.max(200, host.clientWidth), height: HEIGHT });
  }).observe(grid);

  readInks();
  load();
})();
